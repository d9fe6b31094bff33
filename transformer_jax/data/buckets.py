"""Length buckets: a few static shapes with as little padding as possible."""

import math
from typing import NamedTuple

import numpy as np

# More different widths than this are joined by a larger step: the work grows with their square.
MAX_CANDIDATES = 512


class Bucket(NamedTuple):
    """Batches of ``rows`` pairs; a pair belongs to the first bucket with ``widest`` >= its longer side.

    The widths of the two sides are the longest of its members, so one of them may be less than ``widest``.
    """

    rows: int
    source_width: int
    target_width: int
    widest: int
    num_batches: int


def rows_of(width: int, tokens_per_update: int, row_multiple: int) -> int:
    """The number of rows of ``width`` that the tokens allow: a multiple of ``row_multiple``, and at least that."""
    return max(tokens_per_update // width // row_multiple, 1) * row_multiple


def max_rows(width: int, tokens_per_update: int, row_multiple: int) -> int:
    """Rows of ``width`` that hold the tokens although a tenth of the positions is padding, the next ``row_multiple``."""
    return math.ceil(tokens_per_update / 0.9 / width / row_multiple) * row_multiple


def choose_buckets(
    lengths: np.ndarray, num_buckets: int, tokens_per_update: int, row_multiple: int, width_multiple: int
) -> list[Bucket]:
    """At most ``num_buckets`` buckets for pairs of these lengths [2, pairs], narrowest first, with the fewest positions; exact.

    Dynamic programming over the widths that occur (multiples of ``width_multiple``), with whole batches as the cost, so that
    the padding rows of the last batch of each bucket count too::

        positions[k][j] = min_i positions[k-1][i] + num_batches(i, j) * rows(i, j) * (source_width + target_width)
    """
    longer_side = lengths.max(axis=0)
    step = width_multiple
    while len(np.unique(rounded_up(longer_side, step))) > MAX_CANDIDATES:
        step *= 2
    candidates, candidate_of, counts = np.unique(rounded_up(longer_side, step), return_inverse=True, return_counts=True)
    number = len(candidates)
    # Of the bucket from each candidate to each other [number, number]: widths, rows, batches, positions in an epoch.
    widths = []
    for side in lengths:
        longest = np.zeros(number, np.int64)
        np.maximum.at(longest, candidate_of, side)
        by_start = np.triu(np.broadcast_to(longest, (number, number)))
        widths.append(rounded_up(np.maximum.accumulate(by_start, axis=1), width_multiple))
    # The widest pair of a bucket decides, so every bucket that ends at the same candidate has as many rows.
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
        found = rows[last], widths[0][start, last], widths[1][start, last], candidates[last], batches[start, last]
        buckets.append(Bucket(*map(int, found)))
        used, end = used - 1, start
    return buckets[::-1]


def rounded_up(lengths: np.ndarray, step: int) -> np.ndarray:
    return -(-lengths.astype(np.int64) // step) * step
