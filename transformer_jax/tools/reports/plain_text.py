"""A report for the terminal."""

import textwrap

from transformer_jax.evaluation.text_table import aligned_table
from transformer_jax.tools.reports.document import Section, Table

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
    alignment = "".join("l" if table.is_text(column) else "r" for column in range(len(table.headings)))
    return aligned_table([table.headings, *table.rows], alignment)
