"""Orders of indices: random permutations and stable sorting, in little memory also for hundreds of millions of them."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from threading import Lock

import numpy as np

# Numbers that are computed at a time.
BLOCK_ITEMS = 1 << 20
# Numbers that are sorted at a time.
PART = 1 << 23
SAMPLED_BLOCKS, SAMPLE = 64, 256

Keys = Callable[[int, int], np.ndarray]
"""``keys(begin, end)``: sort keys of the items ``begin:end``, uint64; ``begin`` is a multiple of 4."""


def index_type(number: int) -> type[np.signedinteger]:
    """The smaller of int32 and int64 that holds the indices of ``number`` items, and ``number``."""
    return np.int32 if number < 1 << 31 else np.int64


def blocks(number: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of at most ``BLOCK_ITEMS`` of ``number`` items."""
    return ((begin, min(begin + BLOCK_ITEMS, number)) for begin in range(0, number, BLOCK_ITEMS))


def sorted_indices(keys: Keys, number: int) -> Iterator[np.ndarray]:
    """The parts of ``np.argsort(keys(0, number), kind="stable")``, in order.

    Items with keys between two quantiles of a sample are a part. So memory holds the keys of about ``PART`` items.
    """
    if not number:
        return
    splitters: list[int] = []
    if number > PART:
        starts = [number // 4 * block // SAMPLED_BLOCKS * 4 for block in range(SAMPLED_BLOCKS)]
        sample = np.sort(np.concatenate([keys(begin, min(begin + SAMPLE, number)) for begin in starts]))
        quantiles = np.arange(1, -(-number // PART)) * len(sample) * PART // number
        splitters = [each for each in np.unique(sample[quantiles]).tolist() if each]
    for low, high in itertools.pairwise([0, *splitters, 1 << 64]):
        found = []
        for begin, end in blocks(number):
            block = keys(begin, end)
            inside = np.flatnonzero((block >= np.uint64(low)) & (block <= np.uint64(high - 1)))
            found.append((block[inside], (inside + begin).astype(index_type(number))))
        values, indices = (np.concatenate(each) for each in zip(*found, strict=True))
        del found
        yield indices[_argsorted(values)]


def _argsorted(keys: np.ndarray) -> np.ndarray:
    """``np.argsort(keys, kind="stable")``, several times as fast: NumPy sorts numbers by vector instructions, but no pairs.

    It sorts numbers with the leading bits of a key and an index, and then the keys that differ only in their last bits.
    """
    bits = np.uint64(max(len(keys) - 1, 1).bit_length())
    numbers = keys >> bits << bits
    numbers |= np.arange(len(keys), dtype=np.uint64)
    numbers.sort()
    numbers &= (np.uint64(1) << bits) - np.uint64(1)
    order = numbers.view(np.int64)
    in_order = keys[order]
    if len(falls := np.flatnonzero(in_order[1:] < in_order[:-1])):
        leading = in_order >> bits
        mixed = np.unique(leading[falls])
        begins, ends = (np.searchsorted(leading, mixed, side) for side in ("left", "right"))
        sizes = ends - begins
        wrong = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        order[wrong] = order[wrong][np.argsort(in_order[wrong], kind="stable")]
    return order


def concatenated(parts: Iterable[np.ndarray], number: int) -> np.ndarray:
    """Concatenates parts with ``number`` indices in all, and holds one part at a time."""
    found, filled = np.empty(number, index_type(number)), 0
    for part in parts:
        found[filled : filled + len(part)] = part
        filled += len(part)
    return found


def random_order(number: int, seed: int, epoch: int, stream: int) -> np.ndarray:
    """A random permutation of ``number`` indices that is the same in every version of NumPy.

    It sorts the raw output of a counter-based generator (Philox, Salmon et al. 2011), which NumPy keeps stable, unlike
    ``Generator.permutation``. ``stream`` separates the orders of one epoch.
    """
    return concatenated(sorted_indices(partial(_raw_numbers, seed, epoch, stream), number), number)


def _raw_numbers(seed: int, epoch: int, stream: int, begin: int, end: int) -> np.ndarray:
    # Each value of the counter gives four numbers.
    counter = np.array([begin // 4, 0, 0, stream], np.uint64)
    return np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=counter).random_raw(end - begin)


# Otherwise several threads would compute the same order at once.
ONE_AT_A_TIME = Lock()


def epoch_order(number: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch; the cache holds two, since prefetching reads two at their border."""
    with ONE_AT_A_TIME:
        return _epoch_order(number, seed, epoch)


@lru_cache(maxsize=2)
def _epoch_order(number: int, seed: int, epoch: int) -> np.ndarray:
    return random_order(number, seed, epoch, stream=0)
