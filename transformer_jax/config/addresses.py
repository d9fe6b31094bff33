"""Paths and addresses of object stores, ``s3://bucket/runs/a``."""

import re
from pathlib import Path

from transformer_jax.config.errors import ConfigError

# One letter is a drive. In a chain, ``simplecache::s3://...``, the first says so.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(/|:[A-Za-z])")
# Marks an address from a run directory: the user has not asked to open it.
_UNASKED = "unasked+"


def is_address(text: object) -> bool:
    """Whether this names an object in a store, not a file; also if ``pathlib`` has removed one of the two slashes."""
    return _SCHEME.match(str(text).removeprefix(_UNASKED)) is not None


def absolute_path(text: str, key: str) -> str:
    """The absolute path, or empty text; raises ConfigError, which names ``key``, at an address."""
    if is_address(text):
        raise ConfigError(f"{key}: {without_mark(text)} is in an object store; only a path on this machine works here")
    return str(Path(text).expanduser().absolute()) if text else text


def unasked(text: str) -> str:
    """An address from a run directory, which somebody else may have written, marked as not to be opened; a path stays."""
    return f"{_UNASKED}{text}" if is_address(text) and not is_unasked(text) else text


def is_unasked(text: str) -> bool:
    """Whether ``unasked`` marked it."""
    return text.startswith(_UNASKED)


def without_mark(text: str) -> str:
    """The address that ``unasked`` marked."""
    return text.removeprefix(_UNASKED)
