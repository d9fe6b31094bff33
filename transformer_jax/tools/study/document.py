"""Reports of paragraphs, tables and pictures, and their writers: HTML, Markdown, plain text, LaTeX and CSV."""

import base64
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.json_text import printable
from transformer_jax.files.terminal import paragraph, table_width, text_table

FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Characters with a meaning in Markdown or HTML; an underscore has none inside a word. On GitHub a
# dollar sign opens a formula.
MEANINGFUL = re.compile(r"([\\`*{}\[\]<>#|~$&]|(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9]))")
LATEX = {
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "±": r"$\pm$"},
    **{"<": "$<$", ">": "$>$", "|": r"\textbar{}"},
}
META = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
STYLE = files(__package__).joinpath("report.css").read_text(encoding="utf-8")


class Cell(NamedTuple):
    """A cell with a ``text`` for readers and a ``value`` for CSV; a tuple, in the heading too, is several columns there."""

    text: str
    value: Any

    @classmethod
    def of(cls, value: Any, form: str | Callable[[Any], str] = "{}") -> "Cell | None":
        """Return a value with a format, or a function that writes it; None is an empty cell."""
        return None if value is None else cls(form.format(value) if isinstance(form, str) else form(value), value)

    @classmethod
    def interval(cls, value: float, lower: float, upper: float, digits: int = 2, sign: str = "") -> "Cell":
        """``36.14 [34.42, 37.69]``; in CSV the columns of ``of_interval``."""
        texts = [f"{each:{sign}.{digits}f}" for each in (value, lower, upper)]
        return cls(f"{texts[0]} [{texts[1]}, {texts[2]}]", (value, lower, upper))

    @classmethod
    def of_interval(cls, name: str, text: str = "") -> "Cell":
        """Return the heading of intervals; ``text`` for readers, by default the name."""
        return cls(text or name, (f"{name} value", f"{name} lower", f"{name} upper"))


@dataclass(frozen=True)
class Table:
    """Rows under headings; columns in ``of_text``, which count from 0, are aligned left, the others right.

    Readers see the text of a ``Cell``, nothing for None, and other values as ``str`` writes them.
    """

    headings: tuple[Any, ...]
    rows: tuple[tuple[Any, ...], ...]
    of_text: frozenset[int] = frozenset({0})

    @property
    def alignment(self) -> str:
        """A letter for each column, l or r."""
        return "".join("l" if column in self.of_text else "r" for column in range(len(self.headings)))

    @property
    def lines(self) -> list[list[str]]:
        """The headings and the rows for readers."""
        return [[_text(cell) for cell in row] for row in (self.headings, *self.rows)]


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
    """Write ``name.md``, ``name.html`` and ``tables`` (CSV by file name); returns the paths."""
    contents = {f"{name}.md": to_markdown(document), f"{name}.html": to_html(document), **tables}
    for file, content in contents.items():
        write_whole(folder / file, content)
    return [folder / file for file in contents]


def to_html(document: Document) -> str:
    """Return the whole report; all text is escaped."""
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
    """Return the whole report; pictures are links to their files."""
    parts = [f"# {escaped(document.title)}"]
    for section in document.sections:
        parts.append(f"## {escaped(section.title)}")
        parts += [_markdown_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Return the text with a backslash before each character that has a meaning in Markdown, and with spaces for line ends."""
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
    """Return the heading, paragraphs and tables; pictures are omitted."""
    blocks = [
        to_text(block) if isinstance(block, Table) else paragraph(printable(block))
        for block in section.blocks
        if isinstance(block, str | Table)
    ]
    return "\n\n".join([section.title, *blocks])


def to_text(table: Table) -> str:
    return text_table(table.lines, table.alignment, columns=table_width())


def to_latex(table: Table, caption: str) -> str:
    """Return a table for LaTeX with the package booktabs."""
    rows = [" & ".join(_for_latex(cell) for cell in row) + r" \\" for row in table.lines]
    head = [r"\begin{table}", r"\centering", rf"\caption{{{_for_latex(caption)}}}"]
    body = [rf"\begin{{tabular}}{{{table.alignment}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
    return "\n".join([*head, *body, r"\end{tabular}", r"\end{table}"]) + "\n"


def _for_latex(text: str) -> str:
    text = re.sub(r"[\\{}$&#%_^~<>|±]", lambda found: LATEX.get(found[0], rf"\{found[0]}"), " ".join(text.splitlines()))
    # A hyphen before a number is a minus sign.
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)


def _text(cell: Any) -> str:
    return cell.text if isinstance(cell, Cell) else "" if cell is None else str(cell)


def to_csv(*tables: Table) -> str:
    """CSV (RFC 4180) of tables side by side, whose first column is that of the first table; numbers in full precision.

    Text that a spreadsheet would take for a formula (it begins with ``= + - @``, a tab or a
    carriage return) gets an apostrophe before it, unless it is a number: it may come from somebody
    else's run.
    """
    text = io.StringIO(newline="")
    headings, *rows = zip(*((table.headings, *table.rows) for table in tables), strict=True)
    for row in (headings, *rows):
        columns = zip(headings, row, strict=True)
        values = [list(_values(*each))[number > 0 :] for number, each in enumerate(columns)]
        csv.writer(text).writerow([_inert(value) for of_table in values for value in of_table])
    return text.getvalue()


def _values(headings: Sequence[Any], cells: Sequence[Any]) -> Iterator[Any]:
    """As many values of each cell as its heading has."""
    for pair in zip(headings, cells, strict=True):
        heading, value = (each.value if isinstance(each, Cell) else each for each in pair)
        values = value if isinstance(value, tuple) else (value,)
        yield from (*values, *[None] * ((len(heading) if isinstance(heading, tuple) else 1) - len(values)))


def _inert(value: Any) -> Any:
    if value is None or not str(value).startswith(FORMULA):
        return value
    try:
        float(str(value))
    except ValueError:
        return f"'{value}"
    return value
