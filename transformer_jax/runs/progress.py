"""The messages of a run on stderr, and its progress as a live bar or plain lines."""

import logging
import time
from contextlib import suppress
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from transformer_jax.errors import complain
from transformer_jax.runs.run import Position, RunParts
from transformer_jax.runtime.distributed import is_first

# Seconds between lines where there is no terminal.
SECONDS_BETWEEN_LINES = 15.0


class _StandardError(logging.Handler):
    """Writes lines to the current ``sys.stderr``, which a live bar redirects above itself.

    A closed pipe or terminal or a full disk drops lines, but does not end the run.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if is_first():
            complain(record.getMessage())


LOGGER = logging.getLogger("transformer_jax")
"""The messages of a run; process 0 only."""
LOGGER.setLevel(logging.INFO)
LOGGER.propagate = False
LOGGER.addHandler(_StandardError())


class TimeLeft(TimeRemainingColumn):
    """``left 0:01:23``; empty once all updates are made."""

    def render(self, task: Task) -> Text:
        return Text() if task.finished else Text("left ").append_text(super().render(task))


class ProgressBar:
    """A hook and context manager that shows updates, loss, tokens per second and remaining time."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, quiet=not is_first())
        self._last_line = 0.0
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TimeLeft(),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("training", status="compiling")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A closed terminal.
        with suppress(OSError):
            self._bar.stop()

    def __call__(self, run: RunParts, position: Position) -> None:
        """Move the bar, or write a line every 15 seconds. The time left excludes compilation."""
        number, total, logged = position.number, position.num_updates, position.results.logged
        self._bar.update(self._task, completed=number, total=total)
        if "train/loss" not in logged:
            return
        status = f"loss {logged['train/loss']:.3f}  {logged['speed/target_tokens_per_second']:,.0f} tokens/s"
        self._bar.update(self._task, status=status)
        if not self._console.is_terminal and time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            left = timedelta(seconds=round(run.seconds_per_update(position) * (total - number)))
            LOGGER.info("update %d/%d  %s%s", number, total, status, f"  {left} left" if number < total else "")
