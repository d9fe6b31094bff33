"""Stores in the cache: opened where they are whole, else built."""

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.config.addresses import absolute_path
from transformer_jax.runtime.file_digests import write_digests

StoreType = TypeVar("StoreType")

NOT_WHOLE = OSError, ValueError, KeyError, TypeError, OverflowError
"""Errors of opening a store that is missing, cut short or damaged."""

PARTIAL = ".partial-"
# What a killed process left behind is removed once nothing has been written to it for so long.
ABANDONED_SECONDS = 24 * 3600


def open_or_build(
    cache: str, name: str, open_store: Callable[[Path], StoreType], write: Callable[[Path], object]
) -> StoreType:
    """The store ``name`` in ``data.cache_directory``, which ``open_store`` opens, and ``write`` writes to an empty folder.

    It appears under its name only when it is complete; one that is not whole is replaced. Processes that build the same
    store at once do not disturb each other: the first to finish wins. Raises DataError when the disk cannot be written.
    """
    directory = Path(absolute_path(cache, "data.cache_directory")) / name

    def is_whole(directory: Path) -> bool:
        return _opened(open_store, directory) is not None

    store = _opened(open_store, directory)
    if store is None:
        with _appearing(directory, is_whole) as partial:
            write(partial)
            write_digests(partial)
        store = open_store(directory)
    return store


def memory_map(path: Path, dtype: str, length: int) -> np.ndarray:
    """The numbers in a file, not read before they are asked for.

    Raises ValueError when the file is shorter, or ``dtype`` is not a type of ids and offsets.
    """
    if dtype not in ("uint16", "int32", "int64"):
        raise ValueError(f"{path}: {dtype!r} is not a type of ids")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, mode="r", shape=(length,)) if length else np.zeros(0, dtype)


def _opened(open_store: Callable[[Path], StoreType], directory: Path) -> StoreType | None:
    try:
        return open_store(directory)
    except NOT_WHOLE:
        return None


@contextlib.contextmanager
def _appearing(directory: Path, is_whole: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder to write to, which appears as ``directory`` at the end of the block, if it is still there."""
    partial = _temporary_name(directory)
    try:
        _remove_abandoned(directory.parent)
        partial.mkdir(parents=True)
        yield partial
        if partial.is_dir():
            _move_into_place(partial, directory, is_whole)
    except OSError as error:
        problem = f"cannot write the tokenized data to {directory}: {error}"
        raise DataError(f"data.cache_directory: {problem}; choose another folder") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _move_into_place(partial: Path, directory: Path, is_whole: Callable[[Path], bool]) -> None:
    """Gives a complete store its name, unless another process was first: its store may be mapped already, and stays."""
    try:
        partial.rename(directory)
        return
    except OSError:
        if is_whole(directory):
            return
        if not directory.exists():
            raise
    aside = _temporary_name(directory)
    with contextlib.suppress(FileNotFoundError):  # another process may have moved it
        directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        partial.rename(directory)
    except OSError:
        if not is_whole(directory):
            raise


def _temporary_name(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}{PARTIAL}{uuid.uuid4().hex[:12]}")


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"*{PARTIAL}*"):
        newest = max((file.stat().st_mtime for file in [path, *path.glob("*")] if file.exists()), default=0.0)
        if time.time() - newest > ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
