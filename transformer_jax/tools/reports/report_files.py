"""Reports on disk: one document as Markdown and HTML, its pictures, and tables as CSV (RFC 4180)."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.tools.reports.document import Document
from transformer_jax.tools.reports.html_page import to_html
from transformer_jax.tools.reports.markdown import to_markdown

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_report(folder: Path, name: str, document: Document, tables: Mapping[str, str]) -> list[Path]:
    """Writes ``name.md``, ``name.html`` and each of ``tables`` (CSV by the name of its file), and returns their paths."""
    contents = {f"{name}.md": to_markdown(document), f"{name}.html": to_html(document), **tables}
    for file, content in contents.items():
        write_whole(folder / file, content)
    return [folder / file for file in contents]


def to_csv(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line for the headings and for each row: numbers in full, ``None`` an empty cell.

    Text that a spreadsheet would compute as a formula, since it begins with ``= + - @``, a tab or a carriage return, gets an
    apostrophe before it: it may come from a run that somebody else made.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerows([_inert(cell) for cell in row] for row in (headings, *rows))
    return text.getvalue()


def _inert(cell: object) -> object:
    if cell is None or isinstance(cell, int | float):
        return cell
    return f"'{cell}" if str(cell).startswith(FORMULA) else cell
