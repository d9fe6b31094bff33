"""Names: the nearest known one, natural sort order (10 after 9), and whether they are text at all."""

import difflib
import re
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name most like ``name``, for "did you mean"; None where none is at least ``cutoff`` alike (0 to 1).

    One that alone begins so is meant: ``val`` for ``validation``.
    """
    known = list(known)
    longer = [each for each in known if name and each.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), None)


def natural_order(name: str) -> list[tuple[int, str]]:
    """A sort key that compares numbers by value: ``layer_9`` is ``[(0, "layer_"), (9, ""), (0, "")]``, before ``layer_10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def is_unicode(text: str) -> bool:
    """Whether there is no half of a surrogate pair in the text, which no file can hold and no tokenizer reads."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
