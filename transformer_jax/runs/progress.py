"""Progress of a run on the terminal: a live bar, or plain lines where there is no terminal."""

import time
from types import TracebackType

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from transformer_jax.array_types import PyTree
from transformer_jax.training.compiled_step import CompiledStep

# Seconds between lines where there is no terminal.
SECONDS_BETWEEN_LINES = 15.0


class TrainingProgress:
    """Shows updates done, loss, tokens per second and the time that is left. A context manager."""

    def __init__(self, total: int, done: int, console: Console | None = None, is_quiet: bool = False) -> None:
        self._console = console or Console(stderr=True, quiet=is_quiet)
        self._total = total
        self._last_line = 0.0
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("training", total=total, completed=done, status="compiling")

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def warn_of_unplanned_shape(self, compiled: CompiledStep, batch: PyTree, number: int) -> None:
        """Says so when the step has to be compiled once more, for a batch of a shape that was not planned."""
        if not compiled.is_planned(batch):
            shapes = " and ".join(str(shape) for shape in dict.fromkeys(leaf.shape for leaf in jax.tree.leaves(batch)))
            self.say(f"update {number}: compiling once more, for a batch of {shapes} that was not planned")

    def advance(self, done: int) -> None:
        """Moves the bar to ``done`` updates."""
        self._bar.update(self._task, completed=done)

    def end_at(self, total: int) -> None:
        """Changes the number of updates."""
        self._total = total
        self._bar.update(self._task, total=total)

    def show(self, done: int, loss: float, tokens_per_second: float, seconds_per_update: float) -> None:
        """Shows loss, speed and the time that is left, compilation not counted; a plain line every quarter of a minute where
        there is no terminal.
        """
        left = time.strftime("%H:%M:%S", time.gmtime(seconds_per_update * (self._total - done)))
        status = f"loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s"
        self._bar.update(self._task, completed=done, status=status)
        if not self._console.is_terminal and time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self.say(f"update {done}/{self._total}  {status}  {left} left")

    def say(self, message: str) -> None:
        """Prints a line above the bar."""
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)
