"""Tokenized data in the cache: opened where it is whole and undamaged, else built."""

import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.config.checks import absolute_path
from transformer_jax.runtime.atomic_files import appearing_folder
from transformer_jax.runtime.file_digests import changed_files, write_digests

StoreType = TypeVar("StoreType")

NOT_WHOLE = OSError, ValueError, KeyError, TypeError, OverflowError
"""Errors of opening a store that is missing, cut short or damaged."""

PARTIAL = ".partial"
# A partial store of a killed process is removed once nothing has been written to it for this long.
ABANDONED_SECONDS = 24 * 3600
# Larger stores are checked in the background, after this many segments.
CHECKED_AT_ONCE = 1 << 28
SAMPLED_SEGMENTS = 16
SECONDS_UNTIL_SHOWN = 2.0
SECONDS_BETWEEN_BUILD_LINES = 15.0


def open_or_build(
    cache: str, name: str, open_store: Callable[[Path], StoreType], write: Callable[[Path], object]
) -> StoreType:
    """The store ``name`` in ``data.cache_directory``, which ``open_store`` opens, and ``write`` writes to an empty folder.

    It appears under its name only when it is complete; one that is not whole is replaced. Processes that build the same
    store at once do not disturb each other: the first to finish wins. Raises DataError when the disk cannot be written.
    """
    directory = Path(absolute_path(cache, "data.cache_directory")) / name
    if (store := _opened(open_store, directory)) is not None:
        return store
    try:
        _remove_abandoned(directory.parent)
        with appearing_folder(directory) as partial:
            write(partial)
            write_digests(partial)
            if directory.exists() and _opened(open_store, directory) is None:
                shutil.rmtree(directory, ignore_errors=True)
    except OSError as error:
        # Another process may have been first; its store may be mapped already, and stays.
        if _opened(open_store, directory) is None:
            problem = f"cannot write the tokenized data to {directory}: {error}"
            raise DataError(f"data.cache_directory: {problem}; choose another folder") from error
    return open_store(directory)


def memory_map(path: Path, dtype: str, length: int) -> np.ndarray:
    """The numbers in a file, read when they are used.

    Raises ValueError when the file is shorter, or ``dtype`` is not a type of ids and offsets.
    """
    if dtype not in ("uint16", "int32", "int64"):
        raise ValueError(f"{path}: {dtype!r} is not a type of ids")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, mode="r", shape=(length,)) if length else np.zeros(0, dtype)


class StoreCheck:
    """Compares a store with its digests: a small one whole, a large one in samples and then whole in the background.

    Raises ValueError when it is damaged. A store of an earlier version, without digests, passes.
    """

    def __init__(self, directory: Path) -> None:
        is_large = sum(file.stat().st_size for file in directory.iterdir()) > CHECKED_AT_ONCE
        if changed := changed_files(directory, sample=SAMPLED_SEGMENTS if is_large else None):
            raise ValueError(f"{directory}: {', '.join(changed)} changed since written")
        self._directory = directory
        self._changed: Future[list[str]] | None = None
        if is_large:
            with_one_thread = ThreadPoolExecutor(1)
            self._changed = with_one_thread.submit(changed_files, directory)
            with_one_thread.shutdown(wait=False)

    def finish(self) -> None:
        """Waits for the check of the whole store; call before anything that was trained on it is saved.

        Raises DataError when the store is damaged, and removes it: it is then built again.
        """
        changed = self._changed.result() if self._changed else []
        if changed:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise DataError(
                f"{self._directory}: {', '.join(changed)} changed since the data were tokenized; the store is removed, and "
                "nothing that was trained on it is saved: run the same command to tokenize again"
            )


class BuildProgress:
    """Progress of building a store: a line on standard error after two seconds, then every fifteen; ``total`` 0: not known."""

    def __init__(self, split: str, total: int, unit: str = "pairs", doing: str = "tokenizing") -> None:
        self._split, self._total, self._unit, self._doing = split, total, unit, doing
        self._done = 0
        self._started = time.monotonic()
        self._next_line = self._started + SECONDS_UNTIL_SHOWN

    def advance(self, number: int) -> None:
        """Counts ``number`` more units."""
        self._done += number
        now = time.monotonic()
        if now < self._next_line:
            return
        self._next_line = now + SECONDS_BETWEEN_BUILD_LINES
        rate = self._done / (now - self._started)
        of_total = f" of {self._total:,}" if self._total else ""
        line = f"{self._doing} {self._split}: {self._done:,}{of_total} {self._unit}, {rate:,.0f} a second"
        sys.stderr.write(f"{line}\n")


def _opened(open_store: Callable[[Path], StoreType], directory: Path) -> StoreType | None:
    try:
        return open_store(directory)
    except NOT_WHOLE:
        return None


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"*{PARTIAL}*"):
        newest = max((file.stat().st_mtime for file in [path, *path.glob("*")] if file.exists()), default=0.0)
        if time.time() - newest > ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
