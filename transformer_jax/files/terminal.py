"""Text that fits the width of the terminal: paragraphs, lists and tables."""

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import accumulate

from transformer_jax.files.json_text import printable

INDENT = " " * 6
USUAL_WIDTH = 80
LEAST_WIDTH = 40
MAX_WIDTH = 100
LEAST_COLUMN = 24
GAP = "  "


class _Wrapper(textwrap.TextWrapper):
    """Breaks lines at white space, and behind the bars of sacreBLEU's signatures."""

    wordsep_re = re.compile(r"(\s+|[^\s|]*:[^\s|]*\|)")


def width() -> int:
    return max(shutil.get_terminal_size((USUAL_WIDTH, 24)).columns, LEAST_WIDTH)


def table_width() -> int | None:
    """Return the width for tables, or None if standard output is no terminal."""
    return width() if sys.stdout.isatty() else None


def paragraph(text: str, first: str = "", rest: str = "", columns: int = 0) -> str:
    """Return the text in lines of ``columns`` characters (0: of the terminal)."""
    options = {"break_long_words": False, "initial_indent": first, "subsequent_indent": rest}
    return _Wrapper(columns or width(), **options).fill(text)  # type: ignore[arg-type]


def listing(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and texts in two columns, or below each other on a narrow terminal."""
    left = max(len(name) for name, _ in rows) + 4
    if width() < left + 40:
        return "".join(f"  {name}\n{paragraph(text, INDENT, INDENT)}\n" for name, text in rows)
    return "".join(f"{paragraph(text, f'  {name}'.ljust(left), ' ' * left)}\n" for name, text in rows)


def text_table(rows: Sequence[Sequence[str]], alignment: str = "lrl", *, columns: int | None = None) -> str:
    """Return rows as aligned lines; ``alignment`` has ``l`` or ``r`` for each column.

    Cells become ``printable``. ``[("BLEU", "41.02", "cased"), ("chrF", "9.10", "")]`` gives::

        BLEU  41.02  cased
        chrF   9.10

    In a table that is wider than ``columns`` the text of the last column is wrapped, or the table
    is divided into several, which begin with the first column.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    ends = [*accumulate(widths, lambda end, cell: end + len(GAP) + cell)]
    if columns is not None and len(ends) > 1 and ends[-1] > columns:
        left = columns - ends[-2] - len(GAP)
        if alignment[-1] == "l" and left >= LEAST_COLUMN:
            wrapped = [(cells, paragraph(text, columns=left).split("\n")) for *cells, text in rows]
            rows = [
                [*(cells if line is lines[0] else [""] * len(cells)), line]
                for cells, lines in wrapped
                for line in lines
            ]
        elif len(ends) > 2:
            count = max(sum(end <= columns for end in ends), 2)
            parts = [slice(1, count), slice(count, None)]
            return "\n\n".join(
                text_table([[row[0], *row[part]] for row in rows], alignment[0] + alignment[part], columns=columns)
                for part in parts
            )
    justify = {"l": str.ljust, "r": str.rjust}
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    lines = [
        [justify[side](cell, wide) for cell, wide, side in zip(row, widths, alignment, strict=True)] for row in rows
    ]
    return "\n".join(GAP.join(cells).rstrip() for cells in lines)
