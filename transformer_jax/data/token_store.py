"""Stores of token ids: memory-mapped on a disk, or read from a bucket in blocks (TensorStore).

    STORE/shards/3-of-64/target.ids/0    an array of a part: numbers in whole blocks, and an index
    STORE/shards/3-of-64/part.json       written last: counts, and the types, lengths and CRC-32 of
                                         the blocks of the arrays
    STORE/manifest.json                  the descriptions of all parts; a store without it is
                                         unfinished

An array is one shard of Zarr 3 without compression, so that TensorStore can read single blocks.
"""

import functools
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.data.orders import blocks, joined_ranges
from transformer_jax.data.pair_encoding import Sentences
from transformer_jax.data.store_statistics import SideStatistics, StoreStatistics, summed
from transformer_jax.errors import StoreError, complain, first_line
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.paths import is_address

# Offsets are all read for the plan of the batches, ids here and there.
BLOCK_BYTES = 1 << 20
ID_BLOCKS_IN_ONE = 8
# Blocks that are requested together when they are first needed.
BLOCKS_AT_ONCE = 128
# Share of the memory of a host in which one of perhaps eight processes keeps blocks of buckets.
SHARE_OF_MEMORY = 1 / 16
# Silence of a bucket after which an error is raised.
SECONDS_TO_ANSWER = 600
SHARDS, PART, MANIFEST = "shards", "part.json", "manifest.json"
DOCUMENTS = "documents"
SIDES = ("source", "target")


def sealed(content: Mapping[str, Any]) -> str:
    return json.dumps({"crc32": zlib.crc32(json.dumps(content).encode()), "content": content}) + "\n"


def unsealed(text: str | bytes) -> dict[str, Any]:
    """Return the content of ``sealed``, or raise ValueError if the text was changed."""
    seal = parse_json(text)
    if not isinstance(seal, dict) or seal.get("crc32") != zlib.crc32(json.dumps(seal.get("content")).encode()):
        raise ValueError("a description is damaged, or of an earlier version")
    return seal["content"]


def new_array(folder: Path) -> BinaryIO:
    folder.mkdir()
    return (folder / "0").open("wb")


def completed_array(file: Path, dtype: str) -> dict[str, Any]:
    """Complete a file of numbers as an array, in one block if it is short, and describe it."""
    size, itemsize = file.stat().st_size, np.dtype(dtype).itemsize
    block = max(min(size, BLOCK_BYTES if dtype == "int64" else BLOCK_BYTES // ID_BLOCKS_IN_ONE), itemsize)
    with file.open("r+b") as content:
        crcs = [zlib.crc32(data) for data in iter(lambda: content.read(block), b"")] or [0]
        content.truncate(len(crcs) * block)
        content.seek(0, os.SEEK_END)
        content.write(np.array([(at * block, block) for at in range(len(crcs))], "<u8").tobytes())
    length, whole = size // itemsize, file.stat().st_size
    return {"dtype": dtype, "length": length, "block": block // itemsize, "crc32": crcs, "size": whole}


class Piece(NamedTuple):
    """The first ``length`` of the ``numbers`` of an array of a part, plus ``base``."""

    numbers: Any
    length: int
    base: int
    part: str
    description: Mapping[str, Any]


class StoredArray:
    """An array of all parts of a store; index it by a position or positions from 0, or a slice.

    A block is compared with its CRC-32 before it is first used. Raises ``damaged(part)`` if they
    differ, and StoreError if the bucket at ``address`` refuses or does not answer.
    """

    def __init__(self, pieces: Sequence[Piece], dtype: str, damaged: Callable[[str], Exception], address: str) -> None:
        self.dtype, self._damaged, self._address = np.dtype(dtype), damaged, f"data.store: {address}"
        self._ends = np.cumsum([0, *(piece.length for piece in pieces)], dtype=np.int64)
        self._bases = np.array([piece.base for piece in pieces], np.int64)
        self._numbers = _concatenated([piece.numbers[: piece.length] for piece in pieces], dtype)
        # Piece, begin, end and CRC-32 of every block, and its first position in the whole array.
        self._blocks, first = list[tuple[Piece, int, int, int]](), []
        for begin, piece in zip(self._ends, pieces, strict=False):
            size, length = piece.description["block"], piece.description["length"]
            for at, crc in zip(range(0, piece.length, size), piece.description["crc32"], strict=False):
                self._blocks.append((piece, at, min(at + size, length), crc))
                first.append(begin + at)
        self._first = np.array(first, np.int64)
        self._unchecked = np.ones(len(self._blocks), bool)
        self._has_unchecked = bool(self._blocks)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            index = slice(begin, max(begin, end), step)
        else:
            index = np.asarray(index)
        if self._has_unchecked:
            self._check(index)
        numbers: np.ndarray = _answer(self._address, _request(self._numbers[index]))
        if self._bases.any():
            positions = np.arange(index.start, index.stop, index.step) if isinstance(index, slice) else index
            return numbers + self._bases[np.searchsorted(self._ends, positions, "right") - 1]
        return numbers

    def check(self) -> None:
        self._check(slice(0, len(self)))

    def _check(self, index: slice | np.ndarray) -> None:
        if isinstance(index, slice):
            first, end = np.searchsorted(self._first, [index.start, index.stop - 1], "right")
            needed = np.arange(first - 1, end if index.stop > index.start else first - 1)
        else:
            needed = np.unique(np.searchsorted(self._first, index.ravel(), "right") - 1)
        needed = needed[self._unchecked[needed]]
        for begin in range(0, len(needed), BLOCKS_AT_ONCE):
            group = [self._blocks[number] for number in needed[begin : begin + BLOCKS_AT_ONCE]]
            requests = [_request(piece.numbers[at:end]) for piece, at, end, _ in group]
            for (piece, _, _, crc), request in zip(group, requests, strict=True):
                try:
                    is_sound = zlib.crc32(_answer(self._address, request)) == crc
                except Missing as error:
                    raise self._damaged(piece.part) from error
                if not is_sound:
                    raise self._damaged(piece.part)
        self._unchecked[needed] = False
        self._has_unchecked = bool(self._unchecked.any())


type Ids = np.ndarray | StoredArray


class Missing(DataError):
    """A bucket does not have a block, or its file has another size than when written."""


def _request(numbers: Any) -> Any:
    return numbers if isinstance(numbers, np.ndarray | np.generic) else numbers.read()


def _answer(address: str, request: Any) -> Any:
    if isinstance(request, np.ndarray | np.generic):
        return request
    from transformer_jax.files.store_path import SECONDS_OF_SILENCE, is_outage

    try:
        with suppress(TimeoutError):
            return request.result(timeout=min(SECONDS_OF_SILENCE, SECONDS_TO_ANSWER))
        complain(f"{address} does not answer; TensorStore asks again")
        return request.result(timeout=max(SECONDS_TO_ANSWER - SECONDS_OF_SILENCE, 0))
    except TimeoutError:
        problem = f"the bucket did not answer for {SECONDS_TO_ANSWER} seconds"
        raise StoreError(address, problem, is_outage=True) from None
    except Exception as error:
        if str(error).startswith(("NOT_FOUND", "DATA_LOSS", "OUT_OF_RANGE", "FAILED_PRECONDITION")):
            raise Missing(f"{address}: {first_line(error)}") from error
        raise StoreError(address, first_line(error), is_outage=is_outage(error)) from error


def _concatenated(arrays: Sequence[Any], dtype: str) -> Any:
    if len(arrays) < 2:
        return arrays[0] if arrays else np.zeros(0, dtype)
    import tensorstore

    return tensorstore.concat([tensorstore.array(part) if isinstance(part, np.ndarray) else part for part in arrays], 0)


@functools.cache
def _context() -> Any:
    """Return the cache of the blocks of all buckets in this process."""
    import tensorstore

    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return tensorstore.Context({"cache_pool": {"total_bytes_limit": int(SHARE_OF_MEMORY * memory)}})


def _opened(address: str, description: Mapping[str, Any]) -> Any:
    """Return the numbers of an array of a part, memory-mapped, or opened without a request."""
    dtype, length, block = description["dtype"], description["length"], description["block"]
    if not is_address(address):
        return np.memmap(f"{address}/0", dtype, mode="r", shape=(length,))
    import tensorstore

    from transformer_jax.files.store_path import kvstore

    numbers = {"name": "bytes", "configuration": {"endian": "little"}}
    codec = {"chunk_shape": [block], "codecs": [numbers], "index_codecs": [numbers], "index_location": "end"}
    metadata = {
        "shape": [length],
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [block * len(description["crc32"])]}},
        "chunk_key_encoding": {"name": "v2"},
        "codecs": [{"name": "sharding_indexed", "configuration": codec}],
    }
    spec = {"driver": "zarr3", "kvstore": kvstore(address), "metadata": metadata, "fill_missing_data_reads": False}
    options = {"assume_metadata": True, "recheck_cached_data": "open", "context": _context()}
    return tensorstore.open(spec, open=True, read=True, **options).result()


class StoreParts(NamedTuple):
    """The parts of a store at ``address``, a folder or a bucket: descriptions by name, in order."""

    address: str
    descriptions: Mapping[str, Mapping[str, Any]]
    damaged: Callable[[str], Exception]

    def array(self, name: str, totals: Sequence[int] = ()) -> StoredArray:
        """Return an array of all parts, adding their last offsets ``totals`` to the next."""
        pieces, base = [], 0
        for index, (part, described) in enumerate(self.descriptions.items()):
            array = described["arrays"][name]
            # NumPy would take the bytes of other types for addresses of objects.
            if array["dtype"] not in ("uint16", "int32", "int64"):
                raise ValueError(f"{self.address}: {array['dtype']!r} is not a type of ids and offsets")
            # The last offset of a part is the first of the next.
            if used := array["length"] - bool(totals and index + 1 < len(self.descriptions)):
                try:
                    numbers = _opened(f"{self.address}/{SHARDS}/{part}/{name}", array)
                except (OSError, ValueError) as error:
                    raise self.damaged(part) from error
                pieces.append(Piece(numbers, used, base, part, array))
            base += totals[index] if totals else 0
        return StoredArray(pieces, array["dtype"], self.damaged, self.address)


class Side(NamedTuple):
    """One side of the pairs: sentence ``i`` is ``ids[offsets[i]:offsets[i + 1]]``, with EOS."""

    ids: Ids
    offsets: Ids

    def sentences(self, indices: np.ndarray) -> Sentences:
        """Return the sentences at ``indices``, concatenated, int32, and reads no others."""
        starts, ends = self.offsets[np.stack([indices, indices + 1])]
        lengths = ends - starts
        return Sentences(np.asarray(self.ids[joined_ranges(starts, lengths)], np.int32), lengths.astype(np.int32))


class SplitStore:
    """A tokenized split: its arrays by name."""

    arrays: Mapping[str, StoredArray]

    def __init__(self, parts: StoreParts) -> None:
        self.is_remote = is_address(parts.address)

    def check(self, largest: int) -> None:
        """Compare all blocks of a store of at most ``largest`` bytes with their CRC-32."""
        if sum(len(array) * array.dtype.itemsize for array in self.arrays.values()) <= largest:
            for array in self.arrays.values():
                array.check()

    def counts(self) -> dict[str, int]:
        raise NotImplementedError


class TokenStore(SplitStore):
    """Sentence pairs as token ids, with EOS."""

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        described = list(parts.descriptions.values())
        source, target = ([part[side] for part in described] for side in SIDES)
        dropped, corpora = (summed(part[name] for part in described) for name in ("dropped", "corpora"))
        read, self.num_pairs = sum(part["read"] for part in described), sum(part["sentences"] for part in source)
        # Only sources are compared with the tokens that occur.
        sides = SideStatistics.of(source), SideStatistics.of([{**part, "seen": ""} for part in target])
        self.statistics = StoreStatistics(described[0]["split"], read, self.num_pairs, dropped, *sides, corpora)
        self.arrays = {f"{side}.ids": parts.array(f"{side}.ids") for side in SIDES}
        for side, counts in zip(SIDES, (source, target), strict=True):
            self.arrays[f"{side}.offsets"] = parts.array(f"{side}.offsets", [part["tokens"] for part in counts])
        self.source_side, self.target_side = (
            Side(self.arrays[f"{side}.ids"], self.arrays[f"{side}.offsets"]) for side in SIDES
        )

    def counts(self) -> dict[str, int]:
        statistics = self.statistics
        dropped = {f"left out: {reason}": count for reason, count in statistics.dropped.items()}
        tokens = {f"{side} tokens": getattr(statistics, side).tokens for side in SIDES}
        corpora = {f"pairs of {name}": count for name, count in statistics.corpora.items()}
        return {"pairs read": statistics.read, "pairs": statistics.kept, **corpora, **dropped, **tokens}

    def lengths(self, number: int | None = None, first: int = 0) -> np.ndarray:
        """Return source and target tokens of ``number`` pairs (None: all), ``[2, pairs]``."""
        left = self.num_pairs - first
        number = left if number is None else min(number, left)
        longest = max(self.statistics.source.longest, self.statistics.target.longest)
        # Both lengths of a pair are neighbors in memory.
        lengths = np.empty((number, 2), np.uint16 if longest < 1 << 16 else np.int32).T
        for row, side in zip(lengths, (self.source_side, self.target_side), strict=True):
            for begin, end in blocks(number):
                row[begin:end] = np.diff(side.offsets[first + begin : first + end + 1])
        return lengths


class DocumentStore(SplitStore):
    """Documents as token ids, with an EOS after each.

    Document ``i`` is ``ids[offsets[i]:offsets[i + 1]]``, and ends at byte ``byte_offsets[i + 1]``
    of the text. ``corpora``: numbers of documents of the corpora of a mixture, in order.
    """

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        described = list(parts.descriptions.values())
        sizes, texts = [part["bytes"] for part in described], [part[DOCUMENTS] for part in described]
        self.num_documents, self.num_bytes = sum(part["sentences"] for part in texts), sum(sizes)
        self.statistics = SideStatistics.of(texts)
        self.num_tokens, self.corpora = self.statistics.tokens, summed(part["corpora"] for part in described)
        self.ids = parts.array(f"{DOCUMENTS}.ids")
        self.offsets = parts.array(f"{DOCUMENTS}.offsets", [part["tokens"] for part in texts])
        self.byte_offsets = parts.array(f"{DOCUMENTS}.bytes", sizes)
        self.arrays = dict(zip(("ids", "offsets", "bytes"), (self.ids, self.offsets, self.byte_offsets), strict=True))

    def counts(self) -> dict[str, int]:
        corpora = {f"documents of {name}": count for name, count in self.corpora.items()}
        return {"documents": self.num_documents, **corpora, "bytes": self.num_bytes, "tokens": self.num_tokens}

    def to_json(self) -> dict[str, object]:
        return self.counts() | {"bytes_per_token": self.num_bytes / self.num_tokens, "seen": self.statistics.seen}
