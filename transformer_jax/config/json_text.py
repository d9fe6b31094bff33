"""JSON that comes from a file which anybody may have written."""

import json
import math
from typing import Any


def parse_json(content: bytes | str) -> Any:
    """The value; raises ValueError also where text is not UTF-8 and where it is nested too deeply to be read."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_count(value: Any) -> bool:
    """Whether this is a whole number that counts something: from 0 to 10^18."""
    return type(value) is int and 0 <= value <= 10**18


def finite_or_none(value: Any) -> int | float | None:
    """A number as it is, None where it is none or not finite; raises ValueError at anything else."""
    if value is None:
        return None
    if type(value) not in (int, float) or (type(value) is int and abs(value) > 10**18):
        raise ValueError("not a number")
    return value if math.isfinite(value) else None
