"""A report for the terminal."""

import textwrap

from transformer_jax.comparing.document import Section, Table

WIDTH = 100


def section_text(section: Section) -> str:
    """The heading, and below it paragraphs and tables; a picture is left out."""
    blocks = [
        to_text(block) if isinstance(block, Table) else textwrap.fill(block, WIDTH)
        for block in section.blocks
        if isinstance(block, str | Table)
    ]
    return "\n\n".join([section.title, *blocks])


def to_text(table: Table) -> str:
    """Aligned columns, two spaces apart, headings first."""
    rows = [table.headings, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(table, row, widths) for row in rows)


def _line(table: Table, row: tuple[str, ...], widths: list[int]) -> str:
    cells = enumerate(zip(row, widths, strict=True))
    return "  ".join(
        f"{text:<{width}}" if table.is_text(n) else f"{text:>{width}}" for n, (text, width) in cells
    ).rstrip()
