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

    A key and an index must fit into 64 bits together.
    """
    bits = np.uint64(_index_bits(len(keys)))
    numbers = keys.astype(np.uint64)
    numbers <<= bits
    numbers |= np.arange(len(keys), dtype=np.uint64)
    numbers.sort()
    numbers &= (np.uint64(1) << bits) - np.uint64(1)
    return numbers.astype(index_type(len(keys)))


def _index_bits(number: int) -> int:
    return max(number - 1, 1).bit_length()


def random_order(number: int, seed: int, epoch: int, stream: int) -> np.ndarray:
    """A random permutation of ``number`` indices that is the same in every version of NumPy.

    It sorts the raw output of a counter-based generator (Philox, Salmon et al. 2011), which NumPy keeps stable, unlike
    ``Generator.permutation``. ``stream`` separates the orders of one epoch.
    """
    counter = np.array([0, 0, 0, stream], np.uint64)
    raw = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=counter).random_raw(number)
    return stable_order(raw >> np.uint64(_index_bits(number)))


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
