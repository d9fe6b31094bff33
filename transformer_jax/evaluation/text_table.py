"""Plain tables of names and values, for terminals, logs and READMEs alike."""

from collections.abc import Sequence


def text_table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Returns rows of (name, value, remark) as aligned lines: names to the left, values to the right.

    ``[("BLEU", "41.02", "cased"), ("chrF", "9.10", "")]`` gives::

        BLEU  41.02  cased
        chrF   9.10
    """
    return aligned_table(rows, "lrl")


def aligned_table(rows: Sequence[Sequence[str]], alignment: str) -> str:
    """Returns rows of any width as aligned lines; ``alignment`` has ``l`` or ``r`` for each column.

    ``aligned_table([("step", "BLEU"), ("630", "9.10")], "rr")`` gives::

        step  BLEU
         630  9.10
    """
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    justify = {"l": str.ljust, "r": str.rjust}
    lines = [
        [justify[side](cell, width) for cell, width, side in zip(row, widths, alignment, strict=True)] for row in rows
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in lines)
