"""A report as Markdown (GitHub's, with its tables); every text is escaped."""

import re

from transformer_jax.tools.reports.document import Document, Picture, Table

# What Markdown or the HTML inside it would read as something else. A dollar sign opens a formula on GitHub.
# An underscore inside a word is one.
MEANINGFUL = re.compile(r"([\\`*{}\[\]<>#|~$&]|(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9]))")


def to_markdown(document: Document) -> str:
    """The whole report; pictures are referred to by the names of their files."""
    parts = [f"# {escaped(document.title)}"]
    for section in document.sections:
        parts.append(f"## {escaped(section.title)}")
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """With a backslash before each character that would mean something; line ends are spaces, for a row is one line."""
    return MEANINGFUL.sub(r"\\\1", " ".join(text.splitlines()))


def _block(block: str | Table | Picture) -> str:
    if isinstance(block, Picture):
        return f"![{escaped(block.words)}]({block.name})"
    if isinstance(block, Table):
        marks = ["---" if block.is_text(column) else "---:" for column in range(len(block.headings))]
        rows = [[escaped(cell) for cell in row] for row in (block.headings, *block.rows)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], marks, *rows[1:]))
    return escaped(block)
