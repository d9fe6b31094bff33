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


def bar_at(monkeypatch, number: int) -> str:
    """The line of the bar of a run of 12 updates."""
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    logged = {"train/loss": 1.0, "speed/target_tokens_per_second": 100.0}
    with ProgressBar() as bar:
        bar(Mock(), Mock(number=number, num_updates=12, results=Mock(logged=logged)))
    return console.file.getvalue().rpartition("training")[2]


def test_a_finished_run_has_no_time_left(monkeypatch):
    assert "left" in bar_at(monkeypatch, 6)
    finished = bar_at(monkeypatch, 12)
    assert "12/12" in finished and "left" not in finished
