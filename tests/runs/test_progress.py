"""The progress of a run in a notebook."""

import sys
from io import StringIO
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

from rich.console import Console

from transformer_jax.runs import progress
from transformer_jax.runs.progress import LOGGER, ProgressBar


def test_a_notebook_has_one_line_that_is_replaced(monkeypatch, capsys):
    calls = []
    display = ModuleType("IPython.display")
    display.display = lambda content, **options: calls.append((content, options))
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    logged = {"train/loss": 2.0, "speed/target_tokens_per_second": 1000.0}
    monkeypatch.setattr(progress, "Console", lambda **_: Console(force_jupyter=True))
    with ProgressBar() as bar:
        for number in (10, 20):
            bar(SimpleNamespace(number=number, num_updates=40, logged=logged, seconds_per_update=1.0))
    (first, made), (second, replaced) = calls
    assert (made["update"], replaced["update"]) == (False, True)
    assert made["display_id"] == replaced["display_id"]
    assert second["text/plain"] == "update 20/40  loss 2.000  1,000 tokens/s  0:00:20 left"
    assert '<progress value="10" max="40">' in first["text/html"]
    assert "update" not in capsys.readouterr().err


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
