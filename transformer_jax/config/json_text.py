"""JSON and text from files that anybody may have written."""

import json
import math
from typing import Any


def parse_json(content: bytes | str) -> Any:
    """The value; raises ValueError also if the text is not UTF-8 or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_count(value: Any) -> bool:
    """Whether the value is a whole number from 0 to 10^18."""
    return type(value) is int and 0 <= value <= 10**18


def finite_or_none(value: Any) -> int | float | None:
    """The number, or None for None and numbers that are not finite; raises ValueError for anything else."""
    if value is None:
        return None
    if type(value) not in (int, float) or (type(value) is int and abs(value) > 10**18):
        raise ValueError("not a number")
    return value if math.isfinite(value) else None


def is_unicode(text: str) -> bool:
    """Whether the text has no unpaired surrogate, which no file can hold and no tokenizer reads."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
