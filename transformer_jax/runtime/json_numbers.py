"""Numbers in JSON from untrusted files, and in JSON that others read."""

import math
from collections.abc import Mapping
from typing import Any


def is_count(value: Any) -> bool:
    """Whether the value is an integer from 0 to 10^18."""
    return type(value) is int and 0 <= value <= 10**18


def finite_or_none(value: Any) -> int | float | None:
    """The number, or None for None and nonfinite numbers; raises ValueError for other values."""
    if value is None:
        return None
    if type(value) not in (int, float) or (type(value) is int and abs(value) > 10**18):
        raise ValueError("not a number")
    return value if math.isfinite(value) else None


def finite_or_null(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values``, and mappings in them, with None for every float that is not finite."""

    def changed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return finite_or_null(value)
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {name: changed(value) for name, value in values.items()}
