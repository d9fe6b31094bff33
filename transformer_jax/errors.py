"""Errors of users, and suggestions of names for their messages."""

import difflib
import errno
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress

# XLA and TensorFlow; the loader of shared libraries; threads that cannot start; C++.
_MEMORY_TEXTS = (
    "RESOURCE_EXHAUSTED",
    "Out of memory",
    "failed to map segment",
    "can't start new thread",
    "std::bad_alloc",
)

_START = re.compile(r"(transformer-jax: )?WARNING:|transformer-jax:")


class ConfigError(ValueError):
    """A setting is wrong: ``key: problem; remedy``, each of which may be left out."""

    def __init__(self, key: object, problem: object = "", remedy: str = "") -> None:
        before = f"{key}: {problem}" if problem else str(key)
        super().__init__(f"{before}; {remedy}" if remedy else before)


class PluginNeeded(ConfigError):
    """A setting has a value that neither the package nor a loaded plugin registers."""


class DataError(ValueError):
    """A file or data set is wrong. The message names the file and line, the problem and the remedy."""


class StoreError(DataError):
    """An object store refused, or did not answer (``is_outage``), at ``address``."""

    def __init__(self, address: str, reason: str, *, is_outage: bool = False) -> None:
        super().__init__(address, reason)
        self.address, self.reason, self.is_outage = address, reason, is_outage

    def __str__(self) -> str:
        return f"{self.address}: {self.reason}"


def complain(text: str) -> None:
    """Write a line to standard error, if anybody reads it: a closed pipe or a full disk must not end the work."""
    with suppress(OSError):
        sys.stderr.write(f"{colored(text)}\n")
        sys.stderr.flush()


def colored(text: str) -> str:
    """Return the text with the name of the program in red, of a warning in yellow, where standard error is a terminal.

    Not where NO_COLOR is set (https://no-color.org).
    """
    start = _START.match(text)
    if not start or not sys.stderr.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[1;{33 if 'WARNING' in start[0] else 31}m{start[0]}\033[0m{text[start.end() :]}"


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the error, or one that it followed, means that the memory of the host or of a device gave out."""
    seen = set[int]()
    while error and id(error) not in seen:
        seen.add(id(error))
        number = error.errno if isinstance(error, OSError) else None
        if (
            isinstance(error, MemoryError)
            or number == errno.ENOMEM
            or any(text in str(error) for text in _MEMORY_TEXTS)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def first_line(error: BaseException) -> str:
    """Return the first line of the message of a library, cut at 200 characters."""
    return str(error).strip().partition("\n")[0][:200]


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to ``name``; None if no similarity is at least ``cutoff`` (0 to 1).

    If only one known name begins with ``name``, that one is returned: ``val`` finds ``validation``.
    """
    known = list(known)
    longer = [each for each in known if name and each.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), None)


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that compares numbers in names by value: ``layer_9`` comes before ``layer_10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
