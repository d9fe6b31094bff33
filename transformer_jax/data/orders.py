"""Orders of indices: random permutations and stable sorting."""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np

# Numbers that are computed at a time.
BLOCK_ITEMS = 1 << 20


def index_type(number: int) -> type[np.signedinteger]:
    """The smaller of int32 and int64 that holds the indices of ``number`` items, and ``number``."""
    return np.int32 if number < 1 << 31 else np.int64


def blocks(number: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of at most ``BLOCK_ITEMS`` of ``number`` items."""
    return ((begin, min(begin + BLOCK_ITEMS, number)) for begin in range(0, number, BLOCK_ITEMS))


def joined_ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The indices of the ranges ``begin:begin + size``, one after the other."""
    return np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))


def stable_order(keys: np.ndarray) -> np.ndarray:
    """Return ``np.argsort(keys, kind="stable")`` in a third of the time: NumPy vectorizes the sort of numbers alone.

    A key and an index must fit into 64 bits together. Keys of type uint64 are overwritten, which saves memory.
    """
    return _sorted(keys)[0]


def stable_groups(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``stable_order(keys)`` and the offsets in it of the groups of equal keys, and its length at the end."""
    order, sorted_keys = _sorted(keys)
    ends = [np.flatnonzero(np.diff(sorted_keys[begin : end + 1])) + begin + 1 for begin, end in blocks(len(keys))]
    ends = [np.array(each, order.dtype) for each in ([0], *ends, [len(keys)] if len(keys) else [])]
    return order, np.concatenate(ends)


def _sorted(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``stable_order(keys)``, and the sorted keys."""
    bits, numbers = np.uint64(max(len(keys) - 1, 1).bit_length()), keys.astype(np.uint64, copy=False)
    # In blocks, since temporary arrays would double the memory.
    for begin, end in blocks(len(keys)):
        numbers[begin:end] <<= bits
        numbers[begin:end] |= np.arange(begin, end, dtype=np.uint64)
    numbers.sort()
    order = np.empty(len(keys), index_type(len(keys)))
    for begin, end in blocks(len(keys)):
        order[begin:end] = numbers[begin:end] & ((np.uint64(1) << bits) - np.uint64(1))
    numbers >>= bits
    return order, numbers


def random_order(number: int, seed: int, epoch: int, stream: int) -> np.ndarray:
    """A random permutation of ``number`` indices that is the same in every version of NumPy.

    It sorts the raw output of a counter-based generator (Philox, Salmon et al. 2011), which NumPy keeps stable, unlike
    ``Generator.permutation``. ``stream`` separates the orders of one epoch.
    """
    counter = np.array([0, 0, 0, stream], np.uint64)
    raw = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=counter).random_raw(number)
    raw >>= np.uint64(max(number - 1, 1).bit_length())
    return stable_order(raw)


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
