"""Reports of paragraphs, tables and pictures, and their writers: HTML, Markdown, plain text and CSV."""

import base64
import csv
import io
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from transformer_jax.config.json_text import printable
from transformer_jax.evaluation.text_table import text_table
from transformer_jax.runtime.atomic_files import write_whole

WIDTH = 100
FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Characters with a meaning in Markdown or HTML; an underscore has none inside a word. On GitHub a dollar sign opens a formula.
MEANINGFUL = re.compile(r"([\\`*{}\[\]<>#|~$&]|(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9]))")
META = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
STYLE = files(__package__).joinpath("report.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; columns in ``of_text``, which count from 0, are aligned left, the others right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    of_text: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Picture:
    """A PNG: the name of its file next to the report, its bytes, and alternative text (``words``)."""

    name: str
    png: bytes
    words: str


@dataclass(frozen=True)
class Section:
    """A heading and its blocks; a string is a paragraph."""

    title: str
    blocks: tuple[str | Table | Picture, ...]


@dataclass(frozen=True)
class Document:
    title: str
    sections: tuple[Section, ...]


def write_report(folder: Path, name: str, document: Document, tables: Mapping[str, str]) -> list[Path]:
    """Writes ``name.md``, ``name.html`` and ``tables`` (CSV by file name); returns the paths."""
    contents = {f"{name}.md": to_markdown(document), f"{name}.html": to_html(document), **tables}
    for file, content in contents.items():
        write_whole(folder / file, content)
    return [folder / file for file in contents]


def to_html(document: Document) -> str:
    """The whole report; all text is escaped."""
    parts = [f"<h1>{escape(document.title)}</h1>"]
    for section in document.sections:
        parts.append(f"<h2>{escape(section.title)}</h2>")
        parts += [_html_block(block) for block in section.blocks]
    body = "\n".join(parts)
    head = f"{META}\n<title>{escape(document.title)}</title>\n<style>\n{STYLE}</style>"
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _html_block(block: str | Table | Picture) -> str:
    if isinstance(block, Picture):
        content = base64.b64encode(block.png).decode("ascii")
        return f'<img src="data:image/png;base64,{content}" alt="{escape(block.words)}">'
    if isinstance(block, Table):
        rows = "\n".join(_html_row(block, row, "td") for row in block.rows)
        head = _html_row(block, block.headings, "th")
        return f'<div class="scroll"><table>\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'
    return f'<p dir="auto">{escape(block)}</p>'


def _html_row(table: Table, cells: tuple[str, ...], tag: str) -> str:
    parts = []
    for column, cell in enumerate(cells):
        kind = ' class="text" dir="auto"' if column in table.of_text else ""
        text = escape(cell)
        if tag == "th" or column == 0:
            # Names such as beam_width=1.txt may break between words.
            text = re.sub(r"(?<=[^\W\d])([_=./])(?=\w)", r"\1<wbr>", text)
        parts.append(f"<{tag}{kind}>{text}</{tag}>")
    return f"<tr>{''.join(parts)}</tr>"


def to_markdown(document: Document) -> str:
    """The whole report; pictures are links to their files."""
    parts = [f"# {escaped(document.title)}"]
    for section in document.sections:
        parts.append(f"## {escaped(section.title)}")
        parts += [_markdown_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """The text with a backslash before each character that has a meaning in Markdown, and with spaces for line ends."""
    return MEANINGFUL.sub(r"\\\1", " ".join(text.splitlines()))


def _markdown_block(block: str | Table | Picture) -> str:
    if isinstance(block, Picture):
        return f"![{escaped(block.words)}]({block.name})"
    if isinstance(block, Table):
        marks = ["---" if column in block.of_text else "---:" for column in range(len(block.headings))]
        rows = [[escaped(cell) for cell in row] for row in (block.headings, *block.rows)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], marks, *rows[1:]))
    return escaped(block)


def section_text(section: Section) -> str:
    """The heading, paragraphs and tables; pictures are omitted."""
    blocks = [
        to_text(block) if isinstance(block, Table) else textwrap.fill(printable(block), WIDTH)
        for block in section.blocks
        if isinstance(block, str | Table)
    ]
    return "\n\n".join([section.title, *blocks])


def to_text(table: Table) -> str:
    alignment = "".join("l" if column in table.of_text else "r" for column in range(len(table.headings)))
    return text_table([table.headings, *table.rows], alignment)


def to_csv(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV (RFC 4180) with a line of headings; numbers in full precision, ``None`` as an empty cell.

    Text that a spreadsheet would take for a formula (it begins with ``= + - @``, a tab or a carriage return) gets an
    apostrophe before it, unless it is a number: it may come from somebody else's run.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerows([_inert(cell) for cell in row] for row in (headings, *rows))
    return text.getvalue()


def _inert(cell: object) -> object:
    if cell is None or not str(cell).startswith(FORMULA):
        return cell
    try:
        float(str(cell))
    except ValueError:
        return f"'{cell}"
    return cell
