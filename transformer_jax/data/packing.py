"""Packing: several pairs in a row, with little padding (Raffel et al. 2020, section 3.1.1)."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from transformer_jax.data.buckets import rounded_up
from transformer_jax.data.orders import blocks, grouped, stable_order

Widths = tuple[int, int]
"""Positions of a row: source side, target side."""

# Open rows of a lane. With more of them packing is tighter and slower.
OPEN_ROWS = 64
# Pairs of a lane in random order. Lanes are packed independently, in one vectorized loop.
LANE_PAIRS = 8192
# Lanes that are packed together: their open rows fit into the cache of a core.
LANES_AT_ONCE = 2048
# Rows of a lane with longer pairs first. These soon fill their rows, so that about half of the rows
# are open at a time.
LANE_ROWS = 2 * OPEN_ROWS
# Filled share of a row.
FILLED = 0.96


def pack_rows(lengths: np.ndarray, order: np.ndarray, widths: Widths, lanes: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pack pairs of ``lengths`` [2, pairs] into rows of ``widths`` by best fit, in linear time.

    Pairs come in ``order``; a pair goes into the open row with the least free space that holds it.
    If none does, the fullest row is closed and a new one opened. Returns the pairs, row after row,
    and the offsets ``[rows + 1]`` of the rows among them. Example: lengths [3, 2, 4] on both sides
    and widths (5, 5) give pairs [0, 1, 2], offsets [0, 2, 3]. Raises ValueError for a pair that is
    longer than a row.
    """
    number, lengths = len(order), np.asfortranarray(lengths)
    # Free space times the number of open rows, plus the index of the row: the least of these is the
    # row. Differences below zero wrap around to large numbers, so that no row without space is the
    # tightest.
    unsigned: Any = np.uint16 if max(widths) < (1 << 15) // OPEN_ROWS else np.uint32
    width = np.array(widths, unsigned)[:, None]
    empty = width[:, :, None] * OPEN_ROWS + np.arange(OPEN_ROWS, dtype=unsigned)[:, None]
    lanes = lanes or max(number // LANE_PAIRS, 1)
    # Rows are numbered as they open: by pair and, within one pair of all lanes, by lane.
    row_of_pair = np.empty(number, np.uint64)
    for first in range(0, lanes, LANES_AT_ONCE):
        last = min(first + LANES_AT_ONCE, lanes)
        free = np.repeat(empty, last - first, axis=2)
        open_rows = np.arange(first * OPEN_ROWS, last * OPEN_ROWS).reshape(-1, OPEN_ROWS).T.copy()
        left = np.empty_like(free)
        for start in range(first, number, lanes):
            lane = np.arange(min(last - first, number - start))
            among_pairs = slice(start, start + len(lane))
            needed = lengths_of(lengths, order[among_pairs])
            if (needed > width).any():
                raise ValueError(f"a pair is longer than the {widths} positions of a row")
            needed = needed.astype(unsigned) * OPEN_ROWS
            of_lanes = left[:, :, : len(lane)]
            source_left, target_left = np.subtract(free[:, :, : len(lane)], needed[:, None], out=of_lanes)
            tightest = np.maximum(source_left, target_left, out=source_left).min(axis=0)
            slot = tightest & (OPEN_ROWS - 1)
            full = np.flatnonzero(tightest >= (max(widths) + 1) * OPEN_ROWS)
            if len(full):
                # For all lanes, which is faster than to select some.
                fullest = np.maximum(free[0, :, : len(lane)], free[1, :, : len(lane)], out=source_left).min(axis=0)
                slot[full] = fullest[full] & (OPEN_ROWS - 1)
                free[:, slot[full], full] = width * OPEN_ROWS + slot[full]
                open_rows[slot[full], full] = lanes * OPEN_ROWS + start + full
            # Several times as fast as with two indices.
            taken = slot.astype(np.int64) * (last - first) + lane
            for side, length in zip(free.reshape(2, -1), needed, strict=True):
                side[taken] -= length
            row_of_pair[among_pairs] = open_rows.reshape(-1)[taken]
    return grouped(row_of_pair, order)


def longest_first(lengths: np.ndarray, pairs: np.ndarray, widths: Widths) -> tuple[np.ndarray, int]:
    """Return pairs in the order of the space that they take, and the lanes for ``pack_rows``."""
    # Short pairs come last and fill the gaps. Distinct lengths are few: a table has the rank of
    # each two of them.
    occurs = np.zeros((2, int(lengths.max(initial=0)) + 1), bool)
    for begin, end in blocks(len(pairs)):
        for occurs_on_side, side in zip(occurs, lengths_of(lengths, pairs[begin:end]), strict=True):
            occurs_on_side[side] = True
    source, target = map(np.flatnonzero, occurs)
    space = source[:, None] / widths[0] + target / widths[1]
    rank_of = np.unique(-space, return_inverse=True)[1].reshape(space.shape)
    of_source, of_target = np.cumsum(occurs, axis=1) - 1
    ranks = np.empty(len(pairs), np.uint64)
    for begin, end in blocks(len(pairs)):
        sides = lengths_of(lengths, pairs[begin:end])
        ranks[begin:end] = rank_of[of_source[sides[0]], of_target[sides[1]]]
    order = stable_order(ranks)
    del ranks
    lanes = (tokens_of_sides(lengths, pairs) / widths).sum() / 2 / LANE_ROWS
    return pairs[order], max(round(lanes), 1)


def lengths_of(lengths: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return ``lengths[:, pairs]``, fast if both lengths of a pair are neighbors in memory."""
    return lengths.T.take(pairs, axis=0).T


def row_widths(lengths: np.ndarray, packed_length: int, multiple: int) -> list[Widths]:
    """Return widths of rows, narrowest first: ``packed_length``, doubled until all pairs fit.

    The side with fewer tokens is narrower by their ratio. Widths are multiples of ``multiple``:
    with 25 source tokens for 30 target tokens, ``packed_length`` 64 and multiples of 8, the first
    is (56, 64).
    """
    # Several times as fast as along an axis.
    tokens = np.array([side.sum(dtype=np.int64) for side in lengths])
    longest = rounded_up(np.array([side.max() for side in lengths]), multiple)
    width, widths = packed_length, []
    while True:
        rows = np.maximum(np.rint(width * tokens / tokens.max() / multiple), 1).astype(np.int64) * multiple
        if width >= longest.max():
            rows = np.maximum(rows, longest)
        widths.append((int(rows[0]), int(rows[1])))
        if width >= longest.max():
            return widths
        width = min(2 * width, int(longest.max()))


def filled_widths(
    lengths: np.ndarray, order: np.ndarray, widths: Sequence[Widths], tokens_per_update: int
) -> Iterator[tuple[np.ndarray, Widths]]:
    """Yield pairs for rows of ``widths``, widest first: long pairs, completed by shorter ones.

    Rows of every width except the narrowest fill whole batches of ``tokens_per_update``, while
    shorter pairs remain.
    """
    for number in reversed(range(1, len(widths))):
        fits = np.empty(len(order), bool)
        for begin, end in blocks(len(order)):
            source, target = lengths_of(lengths, order[begin:end])
            fits[begin:end] = (source <= widths[number - 1][0]) & (target <= widths[number - 1][1])
        long, order = order[~fits], order[fits]
        del fits
        if not len(long):
            continue
        tokens = tokens_of(lengths, long) / 2
        # In the worst case every long pair fills a row.
        least = max(tokens, len(long) * sum(widths[number]) / 2 * FILLED)
        missing = math.ceil(least / tokens_per_update) * tokens_per_update - tokens
        taken, filled = 0, 0
        for begin, end in blocks(len(order)):
            filling = np.cumsum(lengths_of(lengths, order[begin:end]).sum(axis=0), dtype=np.int64) + filled
            taken += int(np.searchsorted(filling, 2 * missing))
            filled = filling[-1]
        yield np.concatenate([long, order[:taken]]), widths[number]
        order = order[taken:]
    if len(order):
        # Nothing here refers to the array, so that the caller can free it.
        last, order = [order], order[:0].copy()
        yield last.pop(), widths[0]


def tokens_of(lengths: np.ndarray, pairs: np.ndarray) -> int:
    return int(tokens_of_sides(lengths, pairs).sum())


def tokens_of_sides(lengths: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the tokens of both sides of some pairs, int64 [2]."""
    tokens = np.zeros(2, np.int64)
    for begin, end in blocks(len(pairs)):
        tokens += lengths_of(lengths, pairs[begin:end]).sum(axis=1, dtype=np.int64)
    return tokens
