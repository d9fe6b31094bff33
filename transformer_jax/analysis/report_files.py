"""Reports on disk: one document as Markdown and HTML, its pictures, and tables as CSV (RFC 4180)."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from transformer_jax.analysis.document import Document
from transformer_jax.analysis.html_page import to_html
from transformer_jax.analysis.markdown import to_markdown
from transformer_jax.runtime.atomic_files import write_whole


def write_report(folder: Path, name: str, document: Document, tables: Mapping[str, str]) -> list[Path]:
    """Writes ``name.md``, ``name.html`` and each of ``tables`` (CSV by the name of its file), and returns their paths."""
    contents = {f"{name}.md": to_markdown(document), f"{name}.html": to_html(document), **tables}
    for file, content in contents.items():
        write_whole(folder / file, content)
    return [folder / file for file in contents]


def to_csv(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line for the headings and for each row: numbers in full, ``None`` an empty cell."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()
