"""Paths of runs: on a disk, or at ``s3://`` and ``gs://``, as ``StorePath`` with its methods."""

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeGuard

from transformer_jax.errors import ConfigError

if TYPE_CHECKING:
    from transformer_jax.files.store_path import StorePath


# At least two letters, since one is a drive. Also chains such as ``simplecache::s3://...``.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(/|:[A-Za-z])")
# Marks an address from a run directory, which the user did not ask to open.
_UNASKED = "unasked+"


def is_address(text: object) -> bool:
    """Return whether the text is an address such as ``s3://bucket/runs/a``, also with one slash."""
    return _SCHEME.match(str(text).removeprefix(_UNASKED)) is not None


def absolute_path(text: str, key: str) -> str:
    """Return the absolute path, or empty text. Raises ConfigError (``key``) for an address."""
    if is_address(text):
        raise ConfigError(key, f"{without_mark(text)} is in an object store", "only a path on this machine works here")
    return str(Path(text).expanduser().absolute()) if text else text


def unasked(text: str) -> str:
    """Mark an address from a run directory, which may be untrusted, as not to be opened."""
    return f"{_UNASKED}{text}" if is_address(text) and not is_unasked(text) else text


def is_unasked(text: str) -> bool:
    """Return whether ``unasked`` marked the text."""
    return text.startswith(_UNASKED)


def without_mark(text: str) -> str:
    """Return the address that ``unasked`` marked."""
    return text.removeprefix(_UNASKED)


def as_path(text: str | PurePath) -> Path:
    """Return the path of a run on a disk or in a store. Raises ConfigError at other addresses."""
    if not is_address(text):
        return Path(text).expanduser()
    scheme, _, rest = str(text).partition("://")
    if scheme not in ("s3", "gs") or not rest.strip("/") or rest.startswith("/"):
        raise ConfigError(text, "not the address of a run", "write s3://BUCKET/FOLDER or gs://BUCKET/FOLDER")
    # Loads the libraries of object stores: only a run at an address needs them.
    from transformer_jax.files.store_path import StorePath

    path: Any = StorePath(str(text).rstrip("/"))
    return path


def in_store(path: str | PurePath) -> "TypeGuard[StorePath]":
    """Return whether a path from ``as_path``, or below one, is in an object store."""
    return not isinstance(path, Path) and is_address(path)
