"""Orders of indices: random permutations and stable sorting, in 8 bytes for each of hundreds of millions of them."""

from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

# Numbers that are computed at a time, a multiple of 4.
BLOCK_ITEMS = 1 << 20
Keys = Callable[[int, int], np.ndarray]
"""``keys(begin, end)``: sort keys of the items ``begin:end``, uint64; ``begin`` is a multiple of 4."""


def index_type(number: int) -> type[np.signedinteger]:
    """The smaller of int32 and int64 that holds the indices of ``number`` items, and ``number``."""
    return np.int32 if number < 1 << 31 else np.int64


def blocks(number: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of at most ``BLOCK_ITEMS`` of ``number`` items."""
    return ((begin, min(begin + BLOCK_ITEMS, number)) for begin in range(0, number, BLOCK_ITEMS))


def joined_ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The indices of the ranges ``begin:begin + size``, one after the other."""
    return np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))


def sort_numbers(keys: Keys, numbers: np.ndarray) -> np.uint64:
    """Fills ``numbers`` (uint64) in the order of ``np.argsort(keys(0, len(numbers)), kind="stable")``.

    Each has the leading bits of a key and, in the bits of the returned mask, its index: NumPy vectorizes the sort of numbers,
    but not of pairs. Keys that differ only in their last bits are sorted after that, by a second call of ``keys``. ``keys`` may
    read the first half of ``numbers``, since it is called for the last range first, if these bits of its results are zero.
    """
    mask = np.uint64((1 << max(len(numbers) - 1, 1).bit_length()) - 1)
    has_more = False
    for begin, end in reversed(list(blocks(len(numbers)))):
        block = keys(begin, end)
        has_more = has_more or bool((block & mask).any())
        numbers[begin:end] = block & ~mask | np.arange(begin, end, dtype=np.uint64)
    numbers.sort()
    if has_more:
        equal = [
            np.flatnonzero(np.diff(numbers[begin : end + 1] & ~mask) == 0) + begin
            for begin, end in blocks(len(numbers))
        ]
        _sort_equal(np.concatenate(equal), numbers, keys, mask)
    return mask


def _sort_equal(equal: np.ndarray, numbers: np.ndarray, keys: Keys, mask: np.uint64) -> None:
    """Sorts the numbers at ``equal`` and after each, whose leading bits are equal, by all bits of their keys, then by index."""
    tied_indices = np.union1d(equal, equal + 1)
    tied = numbers[tied_indices]
    indices = np.sort(tied & mask).astype(np.int64)
    found = np.zeros(len(tied), np.uint64)
    for begin, end in blocks(len(numbers)):
        part = slice(*np.searchsorted(indices, [begin, end]))
        if part.start < part.stop:
            found[part] = keys(begin, end)[indices[part] - begin]
    numbers[tied_indices] = tied[np.argsort(tied & mask)][np.argsort(found, kind="stable")]


def compacted(numbers: np.ndarray, values: Callable[[np.ndarray], np.ndarray], dtype: np.dtype | type) -> np.ndarray:
    """``values(numbers)`` as ``dtype`` in the memory of ``numbers``, whose rest is freed; other views of it become invalid."""
    number, found = len(numbers), numbers.view(dtype)
    for begin, end in blocks(number):
        found[begin:end] = values(numbers[begin:end])
    size = -(-number * found.itemsize // numbers.itemsize)
    del found
    numbers.resize(size, refcheck=False)
    return numbers.view(dtype)[:number]


def random_order(number: int, seed: int, epoch: int, stream: int) -> np.ndarray:
    """A random permutation of ``number`` indices that is the same in every version of NumPy.

    It sorts the raw output of a counter-based generator (Philox, Salmon et al. 2011), which NumPy keeps stable, unlike
    ``Generator.permutation``. ``stream`` separates the orders of one epoch.
    """
    numbers = np.empty(number, np.uint64)
    mask = sort_numbers(partial(_raw_numbers, seed, epoch, stream), numbers)
    return compacted(numbers, lambda block: block & mask, index_type(number))


def _raw_numbers(seed: int, epoch: int, stream: int, begin: int, end: int) -> np.ndarray:
    # Each value of the counter gives four numbers.
    counter = np.array([begin // 4, 0, 0, stream], np.uint64)
    return np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=counter).random_raw(end - begin)


def cached_epochs[**P, T](make: Callable[P, T]) -> Callable[P, T]:
    """``make``, whose last two results are kept: prefetching reads two epochs at their border.

    Each is computed once, and threads that need the other do not wait for it.
    """
    found: dict[Any, T] = {}
    lock = Lock()

    def cached(*arguments: P.args, **named: P.kwargs) -> T:
        result = found.get(arguments)
        if result is None:
            with lock:
                result = found.get(arguments)
                if result is None:
                    result = make(*arguments, **named)
                    for other in list(found)[:-1]:
                        del found[other]
                    found[arguments] = result
        return result

    return cached


@cached_epochs
def epoch_order(number: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch."""
    return random_order(number, seed, epoch, stream=0)
