"""Paths of runs: on a disk, or at ``s3://`` and ``gs://``, where ``StorePath`` has the same methods."""

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeGuard

from transformer_jax.config.checks import is_address
from transformer_jax.errors import ConfigError

if TYPE_CHECKING:
    from transformer_jax.config.store_path import StorePath


def as_path(text: str | PurePath) -> Path:
    """Return the path of a run, or of a file in one: on a disk, or in an object store.

    Raises ConfigError at an address that Orbax cannot write to, and without the library for its store.
    """
    if not is_address(text):
        return Path(text).expanduser()
    scheme, _, rest = str(text).partition("://")
    if scheme not in ("s3", "gs") or not rest.strip("/") or rest.startswith("/"):
        raise ConfigError(f"{text}: not the address of a run; write s3://BUCKET/FOLDER or gs://BUCKET/FOLDER")
    # Loads the libraries of object stores: only a run at an address needs them.
    from transformer_jax.config.store_path import StorePath

    path: Any = StorePath(str(text).rstrip("/"))
    return path


def in_store(path: str | PurePath) -> "TypeGuard[StorePath]":
    """Whether a path that ``as_path`` returned, or one below it, is in an object store."""
    return not isinstance(path, Path) and is_address(path)
