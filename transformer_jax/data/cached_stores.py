"""Tokenized data in the cache: opened if complete and undamaged, else built."""

import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.checks import absolute_path
from transformer_jax.runtime.atomic_files import appearing_folder, waiting_for_lock
from transformer_jax.runtime.background import future_of
from transformer_jax.runtime.distributed import first_has_opened
from transformer_jax.runtime.file_digests import DIGESTS, changed_files, write_digests

StoreType = TypeVar("StoreType")
SplitType = TypeVar("SplitType", bound="SplitStore")

PARTIAL = ".partial"
# A partial store of a killed process is removed when nothing was written to it for this long.
ABANDONED_SECONDS = 24 * 3600
# A store of more bytes is checked in the background, after a check of some segments.
CHECKED_AT_ONCE = 1 << 28
SAMPLED_SEGMENTS = 16
SECONDS_UNTIL_SHOWN = 2.0
SECONDS_BETWEEN_PROGRESS = 15.0


@dataclass(frozen=True)
class Shard:
    """Shard ``index`` (from 0) of ``count`` shards of a split, in order, each tokenized by a process of its own."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The shard written ``INDEX/COUNT``; raises ConfigError unless 0 <= INDEX < COUNT."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
            raise ConfigError(f"--shard: {text!r} is not INDEX/COUNT with 0 <= INDEX < COUNT, such as 3/64")
        return cls(int(index), int(count))

    def bounds(self, total: int) -> tuple[int, int]:
        """The units ``begin:end`` of this shard of ``total`` units; the last shard has no end."""
        begin, end = (-(-index * total // self.count) for index in (self.index, self.index + 1))
        return begin, end if self.index + 1 < self.count else sys.maxsize


WHOLE_SPLIT = Shard(0, 1)


def open_or_build(
    cache: str, name: str, open_store: Callable[[Path], StoreType], write: Callable[[Path], object]
) -> StoreType:
    """Opens the store ``name`` in ``data.cache_directory``, or builds it: ``write`` fills an empty folder.

    A store gets its name when it is complete; an incomplete or damaged one is replaced. Of several processes one builds it
    and the others wait; where files cannot be locked all build, and the first to finish wins. Raises DataError when the disk
    cannot be written.
    """
    directory = Path(absolute_path(cache, "data.cache_directory")) / name
    if (store := _opened(open_store, directory)) is not None:
        return store
    with waiting_for_lock(directory.with_name(f"{directory.name}.lock")):
        # The process that held the lock may have built it.
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
            # Another process may have been first; its store stays, since it may be mapped already.
            if _opened(open_store, directory) is None:
                problem = f"cannot write the tokenized data to {directory}: {error}"
                raise DataError(f"data.cache_directory: {problem}; choose another folder") from error
    return open_store(directory)


class SplitStore:
    """A tokenized split in a folder.

    ``arrays``: ids (``.ids``) and offsets by file; ``description``: its JSON file; ``check``: whether its files are as written.
    """

    arrays: Mapping[str, Any]
    description: dict[str, Any]
    check: "StoreCheck"

    @property
    def reads_ranges(self) -> bool:
        """Whether ids are read from an object store when batches need them."""
        return not all(isinstance(array, np.ndarray) for array in self.arrays.values())

    def counts(self) -> dict[str, int]:
        """Numbers of examples, tokens and so on, which are summed over shards."""
        raise NotImplementedError


class Tokenization(ABC, Generic[SplitType]):
    """How a split is tokenized; ``kind``: a folder in the cache; ``store_type`` opens a store, by its path and ``open_ids``."""

    kind: ClassVar[str]
    store_type: Callable[..., SplitType]

    @property
    @abstractmethod
    def name(self) -> str:
        """The folder of the store in ``kind``."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, object]:
        """Everything but the text that determines the content."""

    @abstractmethod
    def text(self) -> str:
        """A digest of the text that its copies share."""

    @abstractmethod
    def write(self, directory: Path, shard: Shard = WHOLE_SPLIT) -> None:
        """Fills an empty folder with a shard."""

    @abstractmethod
    def join(self, stores: Iterable[SplitType], directory: Path) -> None:
        """Fills an empty folder with all shards, in order, each read once; raises ValueError or DataError at a damaged one."""

    def opened(self, cache: str) -> SplitType:
        """The store of the whole split, from the cache or built, as ``open_or_build``."""
        return open_or_build(cache, f"{self.kind}/{self.name}", self.store_type, self.write)


def memory_map(path: Path, dtype: str, length: int) -> np.ndarray:
    """The memory-mapped numbers in a file.

    Raises ValueError when the file is shorter, or ``dtype`` is not a dtype of ids and offsets.
    """
    if dtype not in ("uint16", "int32", "int64"):
        raise ValueError(f"{path}: {dtype!r} is not a dtype of ids")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, mode="r", shape=(length,)) if length else np.zeros(0, dtype)


class StoreCheck:
    """Compares a store with its digests; for a large one only samples, and the rest in the background.

    Only process 0 of several that share a disk checks the whole store: if it ends, all processes end. Raises ValueError when
    the store is damaged. A store of an earlier version, without digests, passes.
    """

    def __init__(self, directory: Path) -> None:
        is_large = sum(file.stat().st_size for file in directory.iterdir()) > CHECKED_AT_ONCE
        if changed := changed_files(directory, sample=SAMPLED_SEGMENTS if is_large else None):
            raise ValueError(f"{directory}: {', '.join(changed)} changed since written")
        self._directory = directory
        self._changed: Future[list[str]] | None = None
        if is_large and not first_has_opened(directory / DIGESTS):
            self._changed = future_of(changed_files, directory)

    def finish(self) -> None:
        """Waits for the check of the whole store; call it before saving anything trained on the store.

        Raises DataError when the store is damaged, and removes it, so that the next run builds it again.
        """
        changed = self._changed.result() if self._changed else []
        if changed:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise DataError(
                f"{self._directory}: {', '.join(changed)} changed since the data were tokenized; the store was removed, and "
                "nothing trained on it is saved: run the same command to tokenize again"
            )


class BuildProgress:
    """Progress lines on standard error while a store is built, the first after two seconds; ``total`` 0: unknown."""

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
        self._next_line = now + SECONDS_BETWEEN_PROGRESS
        rate = self._done / (now - self._started)
        # The total may be an estimate.
        of_total = f" of {max(self._total, self._done):,}" if self._total else ""
        line = f"{self._doing} {self._split}: {self._done:,}{of_total} {self._unit}, {rate:,.0f} a second"
        sys.stderr.write(f"{line}\n")


def _opened(open_store: Callable[[Path], StoreType], directory: Path) -> StoreType | None:
    try:
        return open_store(directory)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):  # Missing, incomplete or damaged.
        return None


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"*{PARTIAL}*"):
        newest = max((file.stat().st_mtime for file in [path, *path.glob("*")] if file.exists()), default=0.0)
        if time.time() - newest > ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
