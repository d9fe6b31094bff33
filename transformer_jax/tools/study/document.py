"""Reports of paragraphs, tables and pictures, written as HTML, Markdown, text, LaTeX and CSV."""

import base64
import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.json_text import printable
from transformer_jax.files.terminal import paragraph, table_width, text_table

FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Characters with a meaning in Markdown or HTML. An underscore inside a word has none. On GitHub a
# dollar sign opens a formula.
MEANINGFUL = re.compile(r"([\\`*{}\[\]<>#|~$&]|(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9]))")
LATEX = {
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "±": r"$\pm$"},
    **{"<": "$<$", ">": "$>$", "|": r"\textbar{}"},
}
META = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
STYLE = files(__package__).joinpath("report.css").read_text(encoding="utf-8")


class Cell(NamedTuple):
    """A cell with a ``text`` for readers and a ``value`` for CSV, a tuple for several columns."""

    text: str
    value: Any

    @classmethod
    def of(cls, value: Any, form: str | Callable[[Any], str] = "{}") -> "Cell | None":
        """Return a value written by a format or a function. None is an empty cell."""
        return None if value is None else cls(form.format(value) if isinstance(form, str) else form(value), value)

    @classmethod
    def interval(cls, value: float, lower: float, upper: float, digits: int = 2, sign: str = "") -> "Cell":
        """Return ``36.14 [34.42, 37.69]``, in CSV the columns of ``of_interval``."""
        texts = [f"{number:{sign}.{digits}f}" for number in (value, lower, upper)]
        return cls(f"{texts[0]} [{texts[1]}, {texts[2]}]", (value, lower, upper))

    @classmethod
    def of_interval(cls, name: str, text: str = "") -> "Cell":
        """Return the heading of intervals, for readers ``text`` or the name."""
        return cls(text or name, (f"{name} value", f"{name} lower", f"{name} upper"))


@dataclass(frozen=True)
class Table:
    """Rows under headings.

    Columns in ``of_text``, counted from 0, are aligned left, the others right. Readers see the text
    of a ``Cell``, nothing for None, and other values as ``str`` writes them.
    """

    headings: tuple[Any, ...]
    rows: tuple[tuple[Any, ...], ...]
    of_text: frozenset[int] = frozenset({0})

    @classmethod
    def of_columns(cls, *columns: tuple[Any, Iterable[Any]], of_text: Iterable[int] = (0,)) -> "Table":
        """Return the table of columns, pairs of a heading and its cells."""
        headings, cells = zip(*columns, strict=True)
        return cls(headings, tuple(zip(*cells, strict=True)), frozenset(of_text))

    @property
    def alignment(self) -> str:
        """A letter for every column, l or r."""
        return "".join("l" if column in self.of_text else "r" for column in range(len(self.headings)))

    @property
    def lines(self) -> list[list[str]]:
        """The headings and the rows for readers."""
        return [[_text(cell) for cell in row] for row in (self.headings, *self.rows)]


@dataclass(frozen=True)
class Picture:
    """A PNG beside the report, with alternative text (``words``)."""

    name: str
    png: bytes
    words: str


@dataclass(frozen=True)
class Section:
    """A heading and its blocks. A string is a paragraph."""

    title: str
    blocks: tuple[str | Table | Picture, ...]


@dataclass(frozen=True)
class Document:
    title: str
    sections: tuple[Section, ...]


def write_report(folder: Path, name: str, document: Document, tables: Mapping[str, str]) -> list[Path]:
    """Write ``name.md``, ``name.html`` and ``tables`` (texts by file name). Return the paths."""
    contents = {f"{name}.md": to_markdown(document), f"{name}.html": to_html(document), **tables}
    for file, content in contents.items():
        write_whole(folder / file, content)
    return [folder / file for file in contents]


def to_html(document: Document) -> str:
    """Return the report as a page, with pictures in it."""
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
        head, *rows = (_html_row(block, row, "td" if index else "th") for index, row in enumerate(block.lines))
        return (
            f'<div class="scroll"><table>\n<thead>{head}</thead>\n<tbody>\n{"\n".join(rows)}\n</tbody>\n</table></div>'
        )
    return f'<p dir="auto">{escape(block)}</p>'


def _html_row(table: Table, cells: Sequence[str], tag: str) -> str:
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
    """Return the report with links to the files of pictures."""
    parts = [f"# {escaped(document.title)}"]
    for section in document.sections:
        parts.append(f"## {escaped(section.title)}")
        parts += [_markdown_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Escape characters that have a meaning in Markdown, and join lines."""
    return MEANINGFUL.sub(r"\\\1", " ".join(text.splitlines()))


def _markdown_block(block: str | Table | Picture) -> str:
    if isinstance(block, Picture):
        return f"![{escaped(block.words)}]({block.name})"
    if isinstance(block, Table):
        marks = [{"l": "---", "r": "---:"}[letter] for letter in block.alignment]
        rows = [[escaped(cell) for cell in row] for row in block.lines]
        return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], marks, *rows[1:]))
    return escaped(block)


def section_text(section: Section) -> str:
    """Return the heading, paragraphs and tables, without pictures."""
    texts = [section.title]
    for block in section.blocks:
        if isinstance(block, Table):
            texts.append(text_table(block.lines, block.alignment, columns=table_width()))
        elif isinstance(block, str):
            texts.append(paragraph(printable(block)) if table_width() else printable(block))
    return "\n\n".join(texts)


def to_latex(table: Table, caption: str) -> str:
    """Return a table for LaTeX with the package booktabs."""
    rows = [" & ".join(_for_latex(cell) for cell in row) + r" \\" for row in table.lines]
    head = [r"\begin{table}", r"\centering", rf"\caption{{{_for_latex(caption)}}}"]
    body = [rf"\begin{{tabular}}{{{table.alignment}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return "\n".join([*head, *body, r"\end{tabular}", r"\end{table}"]) + "\n"


def _for_latex(text: str) -> str:
    text = re.sub(r"[\\{}$&#%_^~<>|±]", lambda mark: LATEX.get(mark[0], rf"\{mark[0]}"), " ".join(text.splitlines()))
    # A hyphen before a number is a minus sign.
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)


def _text(cell: Any) -> str:
    return cell.text if isinstance(cell, Cell) else "" if cell is None else str(cell)


def to_csv(*tables: Table) -> str:
    """Return tables side by side, which share their first column, as CSV (RFC 4180).

    Numbers have full precision. An apostrophe precedes text that a spreadsheet would take for a
    formula (it begins with ``= + - @``, a tab or a carriage return): it may come from somebody
    else's run.
    """
    text = io.StringIO(newline="")
    headings, *rows = zip(*((table.headings, *table.rows) for table in tables), strict=True)
    for row in (headings, *rows):
        first, *others = (list(_values(*pair)) for pair in zip(headings, row, strict=True))
        csv.writer(text).writerow(map(_inert, itertools.chain(first, *(values[1:] for values in others))))
    return text.getvalue()


def _values(headings: Sequence[Any], cells: Sequence[Any]) -> Iterator[Any]:
    """Yield the values of cells, as many as their headings have, filled up with None."""
    for pair in zip(headings, cells, strict=True):
        contents = [cell.value if isinstance(cell, Cell) else cell for cell in pair]
        heading, values = (value if isinstance(value, tuple) else (value,) for value in contents)
        yield from (*values, *[None] * (len(heading) - len(values)))


def _inert(value: Any) -> Any:
    if value is None or not str(value).startswith(FORMULA):
        return value
    try:
        float(str(value))
    except ValueError:
        return f"'{value}"
    return value
