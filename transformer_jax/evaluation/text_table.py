"""Plain tables of names and values, for terminals, logs and READMEs alike."""

from collections.abc import Sequence


def text_table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Returns rows of (name, value, remark) as aligned lines: names to the left, values to the right.

    ``[("BLEU", "41.02", "cased"), ("chrF", "9.10", "")]`` gives::

        BLEU  41.02  cased
        chrF   9.10
    """
    name_width = max((len(name) for name, _, _ in rows), default=0)
    value_width = max((len(value) for _, value, _ in rows), default=0)
    return "\n".join(f"{name:<{name_width}}  {value:>{value_width}}  {remark}".rstrip() for name, value, remark in rows)
