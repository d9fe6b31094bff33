"""JSON, its numbers, and text from untrusted files."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# All but tab and line feed.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def parse_json(content: bytes | str) -> Any:
    """Parse JSON. Raises ValueError, also for text that is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogate, which cannot be encoded as UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def printable(text: str) -> str:
    """Return the text with ``<U+001B>`` for control characters except tab and line feed."""
    return _CONTROL.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


def is_count(value: Any) -> bool:
    """Return whether the value is an integer from 0 to 10^18."""
    return type(value) is int and 0 <= value <= 10**18


def finite_or_none(value: Any) -> int | float | None:
    """Return the number, or None for None and nonfinite numbers. Raises ValueError for others."""
    if value is None:
        return None
    if type(value) not in (int, float) or (type(value) is int and abs(value) > 10**18):
        raise ValueError("not a number")
    return value if math.isfinite(value) else None


def finite_or_null(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values``, and mappings in them, with None for every float that is not finite."""

    def changed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return finite_or_null(value)
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {name: changed(value) for name, value in values.items()}
