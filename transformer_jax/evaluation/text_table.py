"""Plain tables for terminals, logs and READMEs."""

from collections.abc import Sequence

from transformer_jax.files.json_text import printable


def text_table(rows: Sequence[Sequence[str]], alignment: str = "lrl") -> str:
    """Rows as aligned lines; ``alignment`` has ``l`` (left) or ``r`` (right) for each column. Cells become ``printable``.

    ``[("BLEU", "41.02", "cased"), ("chrF", "9.10", "")]`` gives::

        BLEU  41.02  cased
        chrF   9.10
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    justify = {"l": str.ljust, "r": str.rjust}
    lines = [
        [justify[side](cell, width) for cell, width, side in zip(row, widths, alignment, strict=True)] for row in rows
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in lines)
