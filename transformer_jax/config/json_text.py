"""JSON that comes from a file which anybody may have written."""

import json
from typing import Any


def parse_json(content: bytes | str) -> Any:
    """The value; raises ValueError also where text is not UTF-8 and where it is nested too deeply to be read."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
