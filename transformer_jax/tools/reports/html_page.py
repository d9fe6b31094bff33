"""A report as one HTML file that needs nothing else: pictures inside, no script, nothing from the network."""

import base64
import re
from html import escape
from pathlib import Path

from transformer_jax.tools.reports.document import Document, Picture, Table

META = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
STYLE = """
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1b2733; background: #fff; max-width: 1300px;
  margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 1.5rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .5rem 0; color: #3d4b58; max-width: 50rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .65rem; text-align: right; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid #dfe4e9; }
th { border-bottom: 2px solid #c9d1d9; font-weight: 600; vertical-align: bottom; white-space: normal; }
th.text, td.text { text-align: left; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
h1, h2, p { overflow-wrap: anywhere; }
td:first-child { font-weight: 600; min-width: 0; overflow-wrap: break-word; }
tbody tr:nth-child(even) { background: #f7f9fa; }
a { color: #1b5a8a; }
img { max-width: 100%; height: auto; }
@media (max-width: 600px) {
  body { margin: 1rem auto; padding: 0 .6rem; }
  table { font-size: .72rem; }
  th, td { padding: .25rem .3rem; white-space: normal; }
  td.text { min-width: 4rem; }
}
"""


def to_html(document: Document) -> str:
    """The whole report; every text is escaped."""
    parts = [f"<h1>{escape(document.title)}</h1>"]
    for section in document.sections:
        parts.append(f"<h2>{escape(section.title)}</h2>")
        parts += [_block(block) for block in section.blocks]
    body = "\n".join(parts)
    head = f"{META}\n<title>{escape(document.title)}</title>\n<style>{STYLE}</style>"
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _block(block: str | Table | Picture) -> str:
    if isinstance(block, Picture):
        content = base64.b64encode(block.png).decode("ascii")
        caption = f"\n<p>{escape(block.caption)}</p>" if block.caption else ""
        return f'<img src="data:image/png;base64,{content}" alt="{escape(block.words)}">{caption}'
    if isinstance(block, Table):
        rows = "\n".join(_row(block, row, "td") for row in block.rows)
        head = _row(block, block.headings, "th")
        return f'<div class="scroll"><table>\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'
    return f'<p dir="auto">{escape(block)}</p>'


def _row(table: Table, cells: tuple[str, ...], tag: str) -> str:
    kinds = [' class="text" dir="auto"' if table.is_text(column) else "" for column in range(len(cells))]
    written = [_cell(table, cell, number, tag) for number, cell in enumerate(cells)]
    return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in zip(kinds, written, strict=True))}</tr>"


def _cell(table: Table, cell: str, number: int, tag: str) -> str:
    """Escaped; names such as ``beam_width=1.txt``, above and at the left, may be broken between their words."""
    if tag == "td" and number in table.linked:
        return _link(cell)
    is_name = tag == "th" or number == 0
    return re.sub(r"(?<=[^\W\d])([_=./])(?=\w)", r"\1<wbr>", escape(cell)) if is_name else escape(cell)


def _link(cell: str) -> str:
    """A path that is there, as a link to it; any other text as it is."""
    path = Path(cell)
    return (
        f'<a href="{escape(path.as_uri())}">{escape(cell)}</a>'
        if path.is_absolute() and path.exists()
        else escape(cell)
    )
