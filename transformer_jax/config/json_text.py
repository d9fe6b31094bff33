"""JSON and text from untrusted files."""

import json
import re
from typing import Any

# All but tab and line feed.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def parse_json(content: bytes | str) -> Any:
    """``json.loads``, with ValueError also for text that is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogate, which cannot be encoded as UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def printable(text: str) -> str:
    """The text with ``<U+001B>`` for each control character, which a terminal could obey; tabs and line feeds stay."""
    return _CONTROL.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
