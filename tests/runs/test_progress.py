"""The progress of a run in a notebook."""

import sys
from io import StringIO
from unittest.mock import Mock

from rich.console import Console

from transformer_jax.runs import progress
from transformer_jax.runs.progress import LOGGER, ProgressBar


def test_a_closed_terminal_or_a_full_disk_does_not_end_the_run(monkeypatch):
    closed = Mock(spec=StringIO)
    closed.write.side_effect = OSError
    monkeypatch.setattr(sys, "stderr", closed)
    LOGGER.info("lost")
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=StringIO(), force_terminal=True)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    with ProgressBar():
        console.file = closed
    assert closed.write.call_count > 1
