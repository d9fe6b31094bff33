"""Length buckets: a few static shapes with minimal padding."""

import math
from typing import NamedTuple

import numpy as np

from transformer_jax.data.orders import blocks

# Maximum number of distinct widths, whose square is the amount of work. A larger step merges
# widths.
MAX_CANDIDATES = 512


class Bucket(NamedTuple):
    """Batches of ``rows`` pairs whose longer side fits ``widest``, but no narrower bucket.

    The width of a side is the length of the longest member on that side. One of them may be less
    than ``widest``.
    """

    rows: int
    source_width: int
    target_width: int
    widest: int
    num_batches: int


def rows_of(width: int, tokens_per_update: int, row_multiple: int) -> int:
    """Return the rows of ``width`` that ``tokens_per_update`` hold.

    Rounded down to a multiple of ``row_multiple``, but at least one multiple.
    """
    return max(tokens_per_update // width // row_multiple, 1) * row_multiple


def max_rows(width: int, tokens_per_update: int, row_multiple: int) -> int:
    """Return the rows of ``width`` for ``tokens_per_update`` and 10 % padding, rounded up."""
    return math.ceil(tokens_per_update / 0.9 / width / row_multiple) * row_multiple


def choose_buckets(
    lengths: np.ndarray, num_buckets: int, tokens_per_update: int, row_multiple: int, width_multiple: int
) -> list[Bucket]:
    """Return the buckets with the fewest positions for ``lengths`` [2, pairs], narrowest first.

    Dynamic programming over the widths that occur (multiples of ``width_multiple``). The cost is
    the positions of whole batches, with the padding rows of the last batches::

        positions[k][j] = min_i positions[k-1][i] + batches(i, j) * rows(j) * (source(i, j) +
        target(i, j))
    """
    pairs_of, longest_of = _by_longer_side(lengths)
    occurring = np.flatnonzero(pairs_of)
    step = width_multiple
    while len(np.unique(rounded_up(occurring, step))) > MAX_CANDIDATES:
        step *= 2
    candidates, candidate_of = np.unique(rounded_up(occurring, step), return_inverse=True)
    number = len(candidates)
    counts = np.zeros(number, np.int64)
    np.add.at(counts, candidate_of, pairs_of[occurring])
    # Entry [i, j] describes the bucket of candidates i to j: widths, batches, positions of an
    # epoch.
    widths = []
    for longest_of_side in longest_of:
        longest = np.zeros(number, np.int64)
        np.maximum.at(longest, candidate_of, longest_of_side[occurring])
        by_start = np.triu(np.broadcast_to(longest, (number, number)))
        widths.append(rounded_up(np.maximum.accumulate(by_start, axis=1), width_multiple))
    # The widest candidate of a bucket determines its rows.
    rows = np.array([rows_of(width, tokens_per_update, row_multiple) for width in candidates.tolist()])
    below = np.concatenate([[0], np.cumsum(counts)])
    batches = -(-np.triu(below[None, 1:] - below[:-1, None]) // rows)
    cost = np.where(batches > 0, batches * rows * (widths[0] + widths[1]), np.inf)
    best = np.full((min(num_buckets, number) + 1, number + 1), np.inf)
    best[0, 0] = 0
    choice = np.zeros(best.shape, np.int64)
    for used in range(1, len(best)):
        totals = best[used - 1, :-1, None] + cost
        choice[used, 1:] = totals.argmin(axis=0)
        best[used, 1:] = totals.min(axis=0)
    used, end = int(np.argmin(best[:, number])), number
    buckets = []
    while used:
        start, last = int(choice[used, end]), end - 1
        bucket = rows[last], widths[0][start, last], widths[1][start, last], candidates[last], batches[start, last]
        buckets.append(Bucket(*map(int, bucket)))
        used, end = used - 1, start
    return buckets[::-1]


def _by_longer_side(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, by the longer side of a pair, the number of pairs, and longest source and target."""
    size = int(lengths.max()) + 1
    counts, longest = np.zeros(size, np.int64), np.zeros((2, size), np.int64)
    for begin, end in blocks(lengths.shape[1]):
        block = lengths[:, begin:end]
        longer = np.maximum(*block).astype(np.int64)
        counts += np.bincount(longer, minlength=size)
        for longest_of_side, side in zip(longest, block, strict=True):
            # Distinct pairs of lengths are few, and np.maximum.at is slow.
            both = np.unique(longer << 32 | side)
            np.maximum.at(longest_of_side, both >> 32, both & (1 << 32) - 1)
    return counts, longest


def rounded_up(lengths: np.ndarray, step: int) -> np.ndarray:
    return -(-lengths.astype(np.int64) // step) * step
