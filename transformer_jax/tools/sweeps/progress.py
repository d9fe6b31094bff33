"""Progress of a sweep on the terminal: a live table of its trials, or a line for each change where there is no terminal."""

from types import TracebackType
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.live import Live
from rich.table import Table

# More trials than a screen has lines are not all shown.
MOST_ROWS = 30


@runtime_checkable
class Rows(Protocol):
    """A table of text; the first two cells of a row are the trial's number and its state."""

    @property
    def headings(self) -> tuple[str, ...]:
        """Column headings."""

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """A row for each trial."""


class SweepProgress:
    """Shows the trials of a sweep. A context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._shown: dict[str, tuple[str, ...]] = {}
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None

    def __enter__(self) -> "SweepProgress":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, table: Rows) -> None:
        """Shows the current table."""
        changed = [row for row in table.rows if self._shown.get(row[0]) != row]
        if self._live and changed:
            self._live.update(_drawn(table), refresh=True)
        elif not self._live:
            for row in changed:
                if row[1] != "waiting":
                    line = "  ".join(f"{name} {cell}" for name, cell in zip(table.headings, row, strict=True) if cell)
                    self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._shown = {row[0]: row for row in table.rows}


def _drawn(table: Rows) -> Table:
    """Table of the trials: those that run, then those that ended, the highest number first, as many as fit."""
    counts = {
        state: sum(row[1] == state for row in table.rows) for state in dict.fromkeys(row[1] for row in table.rows)
    }
    drawn = Table(*table.headings, caption=", ".join(f"{count} {state}" for state, count in counts.items()), box=None)
    running = [row for row in table.rows if row[1] == "running"]
    ended = [row for row in table.rows if row[1] not in ("running", "waiting")]
    for row in [*running, *reversed(ended)][:MOST_ROWS]:
        drawn.add_row(*(cell.replace("[", "\\[") for cell in row))
    return drawn
