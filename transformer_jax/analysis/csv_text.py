"""A table for spreadsheets and programs: CSV (RFC 4180), numbers in full, nothing where there is none."""

import csv
import io
from collections.abc import Iterable, Sequence


def to_csv(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line for the headings and for each row; ``None`` is an empty cell."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()
