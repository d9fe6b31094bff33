"""Progress of a sweep on the terminal: a live table of its trials, or a line for each change where there is no terminal."""

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

# More trials than a screen has lines are not all shown.
MOST_ROWS = 30


class SweepProgress:
    """Shows the rows of a table whose first two cells are the trial's number and its state. A context manager."""

    def __init__(self, head: Sequence[str], console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._head = head
        self._shown: dict[str, Sequence[str]] = {}
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

    def show(self, rows: Sequence[Sequence[str]]) -> None:
        """Shows the table as it is now."""
        changed = [row for row in rows if list(self._shown.get(row[0], ())) != list(row)]
        if self._live and changed:
            self._live.update(self._table(rows), refresh=True)
        elif not self._live:
            for row in changed:
                if row[1] != "waiting":
                    told = "  ".join(
                        f"{name} {cell}" for name, cell in zip(self._head[1:], row[1:], strict=True) if cell
                    )
                    self._console.print(f"trial {row[0]}  {told}", markup=False, highlight=False, soft_wrap=True)
        self._shown = {row[0]: row for row in rows}

    def _table(self, rows: Sequence[Sequence[str]]) -> Table:
        counts = {state: sum(row[1] == state for row in rows) for state in dict.fromkeys(row[1] for row in rows)}
        # What ended long ago gives way to what is going on.
        news = [row for row in rows if row[1] != "waiting"][-MOST_ROWS:]
        table = Table(*self._head, caption=", ".join(f"{count} {state}" for state, count in counts.items()), box=None)
        for row in news:
            table.add_row(*(cell.replace("[", "\\[") for cell in row))
        return table
