"""Token ids in an object store: ranges are read when batches need them, and kept in a local file.

A range consists of blocks of 64 KiB. Each block has a CRC-32, which the job that tokenized its shard writes.
"""

import errno
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.data.cached_stores import memory_map
from transformer_jax.runtime.object_store import SCRATCH

BLOCK_BYTES = 1 << 16
# Blocks between two missing ones that are read with them: a request takes as long as the transfer of several blocks.
LARGEST_GAP = 4
BLOCKS_OF_RANGE = 128
# Ranges that are requested together; memory holds them until all have come.
RANGES_AT_ONCE = 16

ReadRanges = Callable[[Sequence[str], Sequence[int], Sequence[int]], list[bytes]]
"""``read(names, begins, ends)``: the bytes ``begin:end`` of each file."""
type Ids = np.ndarray | RangedIds
OpenIds = Callable[[Path, str, int], Ids]
"""``open_ids(path, dtype, length)``: the ids of the file ``path`` in the folder of a store."""


def fetch_ids(ids: Ids, begins: np.ndarray, ends: np.ndarray) -> None:
    """Reads the positions ``begin:end`` ahead, where the ids are in an object store."""
    if isinstance(ids, RangedIds):
        ids.fetch(begins, ends)


def write_block_crcs(folder: Path) -> None:
    """Writes ``NAME.crcs`` for each ``NAME.ids`` in a folder: the CRC-32 of its blocks, uint32, little-endian."""
    for path in folder.glob("*.ids"):
        with path.open("rb") as file:
            crcs = [zlib.crc32(block) for block in iter(lambda: file.read(BLOCK_BYTES), b"")]
        np.array(crcs, "<u4").tofile(path.with_suffix(".crcs"))


class RangedIds:
    """``length`` ids in several ``files`` of an object store, in order, as an array; index it by positions or a slice.

    ``files``: names, and sizes in bytes; ``crcs``: of all their blocks. The sparse file ``path`` keeps blocks that were read,
    also for other processes of this host: NFS could damage it. A process compares each block with its CRC-32 before the first
    use, from the file or from the store. ``bytes_read`` and ``ranges_read`` count the reads from the store.

    Raises ValueError where sizes, blocks and ``length`` differ. Reading raises StoreError where the store refuses, DataError
    where the disk is full, and the error of ``damaged(name)`` where a file in the store is damaged.
    """

    def __init__(
        self,
        path: Path,
        dtype: str,
        length: int,
        files: Sequence[tuple[str, int]],
        crcs: np.ndarray,
        read: ReadRanges,
        damaged: Callable[[str], Exception],
    ) -> None:
        self._names, self._read, self._damaged, self._path = [name for name, _ in files], read, damaged, path
        self._crcs, self._sizes, self._length = crcs, np.array([size for _, size in files], np.int64), length
        self._first_blocks = np.concatenate([[0], np.cumsum(-(-self._sizes // BLOCK_BYTES))])
        self.dtype = np.dtype(dtype)
        self._first_ids = np.concatenate([[0], np.cumsum(self._sizes[:-1])]) // self.dtype.itemsize
        num_bytes = length * self.dtype.itemsize
        if self._sizes.sum() != num_bytes or self._first_blocks[-1] != len(crcs):
            raise ValueError(f"{path}: {num_bytes} bytes expected, {self._sizes.sum()} in {len(crcs)} blocks found")
        # Each file of the store begins with a block, so that no page of the sparse file has two blocks.
        self._shifts = self._first_blocks[:-1] * (BLOCK_BYTES // self.dtype.itemsize) - self._first_ids
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            if file.tell() != len(crcs) * BLOCK_BYTES:
                file.truncate(len(crcs) * BLOCK_BYTES)
        self._array = memory_map(path, dtype, len(crcs) * BLOCK_BYTES // self.dtype.itemsize)
        self._is_checked = np.zeros(len(crcs), bool)
        self._counting = threading.Lock()
        self.bytes_read, self.ranges_read = 0, 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            self.fetch(np.array([begin]), np.array([end]))
            bounds = np.append(self._first_ids, len(self)).clip(begin, end)
            parts = zip(bounds[:-1] + self._shifts, bounds[1:] + self._shifts, strict=True)
            return np.concatenate([self._array[low:high] for low, high in parts])[::step]
        flat = index.ravel()
        last = np.append(np.flatnonzero(flat[1:] != flat[:-1] + 1), len(flat) - 1)[: len(flat)]
        begins, ends = flat[np.append(0, last[:-1] + 1)[: len(flat)]], flat[last] + 1
        self.fetch(begins, ends)
        shifts = self._shifts[self._file_with(begins)]
        is_whole = (shifts == self._shifts[self._file_with(ends - 1)]).all()
        shift = np.repeat(shifts, ends - begins) if is_whole else self._shifts[self._file_with(flat)]
        found: np.ndarray = self._array[(flat + shift).reshape(index.shape)]
        return found

    def fetch(self, begins: np.ndarray, ends: np.ndarray) -> None:
        """Reads the blocks of the positions ``begin:end`` that are not on the disk."""
        is_range = ends > begins
        if self._is_checked.all() or not is_range.any():
            return
        first, last = (self._block_with(each[is_range]) for each in (begins, ends - 1))
        blocks = np.minimum(first[:, None] + np.arange(int((last - first).max()) + 1), last[:, None])
        found, content = np.unique(blocks[~self._is_checked[blocks]]), self._array.view(np.uint8)
        is_sound = np.array([self._is_sound(block, content[slice(*self._span(block))]) for block in found], bool)
        self._is_checked[found[is_sound]] = True
        missing = found[~is_sound]
        is_apart = (np.diff(missing) > LARGEST_GAP + 1) | (np.diff(self._file_of(missing)) > 0)
        ranges = []
        for part in np.split(missing, np.flatnonzero(is_apart) + 1) if len(missing) else ():
            whole = range(int(part[0]), int(part[-1]) + 1)
            ranges += [whole[at : at + BLOCKS_OF_RANGE] for at in range(0, len(whole), BLOCKS_OF_RANGE)]
        for at in range(0, len(ranges), RANGES_AT_ONCE):
            self._fetch_ranges(ranges[at : at + RANGES_AT_ONCE])

    def _fetch_ranges(self, ranges: Sequence[range]) -> None:
        files = [int(self._file_of(each[0])) for each in ranges]
        bounds = [(self._span(each[0])[0], self._span(each[-1])[1]) for each in ranges]
        begins, ends = (np.array(bounds) - self._first_blocks[files][:, None] * BLOCK_BYTES).T.tolist()
        contents = self._read([self._names[file] for file in files], begins, ends)
        with self._counting:
            self.bytes_read += sum(map(len, contents))
            self.ranges_read += len(contents)
        for blocks, file, (begin, _), content in zip(ranges, files, bounds, contents, strict=True):
            spans = ((block, *self._span(block)) for block in blocks)
            if not all(self._is_sound(block, content[low - begin : high - begin]) for block, low, high in spans):
                raise self._damaged(self._names[file])
            self._write(content, begin)
            self._is_checked[blocks.start : blocks.stop] = True

    def _write(self, content: bytes, begin: int) -> None:
        try:
            with self._path.open("r+b", buffering=0) as file:
                if os.pwrite(file.fileno(), content, begin) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            problem = f"cannot write {self._path} (at most {self._array.nbytes:,} bytes): {error}"
            raise DataError(f"{problem}; choose another folder by {SCRATCH}") from error

    def _is_sound(self, block: int, content: bytes | np.ndarray) -> bool:
        return zlib.crc32(content) == int(self._crcs[block])

    def _file_with(self, position: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._first_ids, position, "right") - 1

    def _block_with(self, position: np.ndarray) -> np.ndarray:
        index = position + self._shifts[self._file_with(position)]
        return index * self.dtype.itemsize // BLOCK_BYTES

    def _file_of(self, block: np.ndarray | int) -> np.ndarray:
        return np.searchsorted(self._first_blocks, block, "right") - 1

    def _span(self, block: int) -> tuple[int, int]:
        """The bytes of a block in the sparse file."""
        file, begin = int(self._file_of(block)), block * BLOCK_BYTES
        return begin, min(begin + BLOCK_BYTES, int(self._first_blocks[file] * BLOCK_BYTES + self._sizes[file]))
