"""Errors of users, and suggestions of names for their messages."""

import difflib
import errno
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress

# Of XLA and TensorFlow, the loader of shared libraries, threads that cannot start, and C++.
_MEMORY_TEXTS = (
    "RESOURCE_EXHAUSTED",
    "Out of memory",
    "failed to map segment",
    "can't start new thread",
    "std::bad_alloc",
)

_START = re.compile(r"(transformer-jax: )?WARNING:|transformer-jax:")


class ConfigError(ValueError):
    """A setting is wrong: ``key: problem; remedy``, of which parts may be left out."""

    def __init__(self, key: object, problem: object = "", remedy: str = "") -> None:
        before = f"{key}: {problem}" if problem else str(key)
        super().__init__(f"{before}; {remedy}" if remedy else before)


class PluginNeeded(ConfigError):
    """Neither the package nor a loaded plugin registers the value of a setting."""


class DataError(ValueError):
    """A file or data set is wrong. The message names file and line, problem and remedy."""


class StoreError(DataError):
    """An object store refused, or did not answer (``is_outage``), at ``address``."""

    def __init__(self, address: str, reason: str, *, is_outage: bool = False) -> None:
        super().__init__(address, reason)
        self.address, self.reason, self.is_outage = address, reason, is_outage

    def __str__(self) -> str:
        return f"{self.address}: {self.reason}"


def complain(text: str) -> None:
    """Write a line to standard error. A closed pipe or a full disk must not end the work."""
    with suppress(OSError):
        sys.stderr.write(f"{colored(text)}\n")
        sys.stderr.flush()


def colored(text: str) -> str:
    """Color the name of the program in a terminal: red, or yellow for a warning.

    Not if NO_COLOR is set (https://no-color.org).
    """
    start = _START.match(text)
    if not start or not sys.stderr.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[1;{33 if 'WARNING' in start[0] else 31}m{start[0]}\033[0m{text[start.end() :]}"


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether the error, or one that it followed, means that memory ran out."""
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
    """Return the first line of a library's message, cut at 200 characters."""
    return str(error).strip().partition("\n")[0][:200]


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to ``name``, None if no similarity reaches ``cutoff``.

    A single name that begins with ``name`` wins: ``val`` gives ``validation``.
    """
    names = list(names)
    longer = [candidate for candidate in names if name and candidate.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers in names by value: ``layer_9`` before ``layer_10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
