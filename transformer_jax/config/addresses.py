"""Addresses of object stores, ``s3://bucket/runs/a``, where a setting or a flag may also be a path."""

import re
from pathlib import Path

from transformer_jax.config.errors import ConfigError

# One letter is a drive. In a chain, ``simplecache::s3://...``, the first says so.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(/|:[A-Za-z])")
# Marks the address of data that a run directory names: nobody here asked for it to be opened.
_UNASKED = "unasked+"


def is_address(text: object) -> bool:
    """Whether this names an object in a store, not a file; also where ``pathlib`` has taken one of the two slashes."""
    return _SCHEME.match(str(text).removeprefix(_UNASKED)) is not None


def absolute_place(text: str) -> str:
    """A path written out in full; an address, or nothing, as it is."""
    return str(Path(text).expanduser().absolute()) if text and not is_address(text) else text


def absolute_path(text: str, key: str) -> str:
    """A path written out in full, or nothing; raises ConfigError, which names ``key``, at an address."""
    if is_address(text):
        raise ConfigError(
            f"{key}: {without_mark(text)} lies in an object store; here only a place on this machine will do"
        )
    return absolute_place(text)


def unasked(text: str) -> str:
    """An address out of a run directory, which may be somebody else's: it is not opened; a path stays as it is."""
    return f"{_UNASKED}{text}" if is_address(text) and not is_unasked(text) else text


def is_unasked(text: str) -> bool:
    """Whether ``unasked`` marked it."""
    return text.startswith(_UNASKED)


def without_mark(text: str) -> str:
    """The address that ``unasked`` marked."""
    return text.removeprefix(_UNASKED)
