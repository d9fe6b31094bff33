"""Packing: several pairs in each row, with little padding (Raffel et al. 2020, section 3.1.1)."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from transformer_jax.data.buckets import rounded_up
from transformer_jax.data.orders import blocks, concatenated, index_type, sorted_indices

Widths = tuple[int, int]
"""Positions of a row: source side, target side."""

# Open rows of a lane; with more of them packing is tighter and slower.
OPEN_ROWS = 64
# Pairs of a lane in random order; lanes are packed independently, in one vectorized loop.
LANE_PAIRS = 8192
# Lanes that are packed together: their open rows fit into the cache of a core.
LANES_AT_ONCE = 2048
# Rows of a lane with longer pairs first: these soon fill their rows, so that about half of the rows are open at a time.
LANE_ROWS = 2 * OPEN_ROWS
# Filled share of a row.
FILLED = 0.96


def pack_rows(lengths: np.ndarray, order: np.ndarray, widths: Widths, lanes: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Packs pairs of ``lengths`` [2, pairs] into rows of ``widths`` positions by best fit, in linear time.

    Pairs come in ``order``; each goes into the open row with the least free space that holds it. If none does, the fullest row
    is closed and a new one opened. Returns the pairs, row after row, and the offsets ``[rows + 1]`` of the rows among them.
    Example: lengths [3, 2, 4] on both sides and widths (5, 5) give pairs [0, 1, 2], offsets [0, 2, 3].

    Raises ValueError for a pair that is longer than a row.
    """
    number, lengths = len(order), np.asfortranarray(lengths)
    # Differences below zero wrap around to large numbers, so that no row without space is the tightest.
    unsigned = np.uint16 if max(widths) < 1 << 15 else np.uint32
    width = np.array(widths, unsigned)[:, None]
    lanes = lanes or max(number // LANE_PAIRS, 1)
    # A row's number is the order in which it opened: by pair and, within one pair of all lanes, by lane.
    num_rows = lanes * OPEN_ROWS + number
    row_of_pair = np.zeros(number, index_type(num_rows))
    for first in range(0, lanes, LANES_AT_ONCE):
        last = min(first + LANES_AT_ONCE, lanes)
        free = np.broadcast_to(width[:, :, None], (2, last - first, OPEN_ROWS)).copy()
        open_rows = np.arange(first * OPEN_ROWS, last * OPEN_ROWS).reshape(-1, OPEN_ROWS)
        left = np.empty_like(free)
        for start in range(first, number, lanes):
            lane = np.arange(min(last - first, number - start))
            chosen = slice(start, start + len(lane))
            needed = lengths_of(lengths, order[chosen])
            if (needed > width).any():
                raise ValueError(f"a pair is longer than the {widths} positions of a row")
            needed = needed.astype(unsigned)
            source_left, target_left = np.subtract(free[:, : len(lane)], needed[:, :, None], out=left[:, : len(lane)])
            wider = np.maximum(source_left, target_left, out=source_left)
            slot = wider.argmin(axis=1)
            full = np.flatnonzero(wider[lane, slot] > max(widths))
            if len(full):
                slot[full] = free[:, full].max(axis=0).argmin(axis=1)
                free[:, full, slot[full]] = width
                open_rows[full, slot[full]] = lanes * OPEN_ROWS + start + full
            free[:, lane, slot] -= needed
            row_of_pair[chosen] = open_rows[lane, slot]
    pairs, sizes, filled = np.empty_like(order), [np.zeros(0, np.int64)], 0
    unused_bits = np.uint64(64 - num_rows.bit_length())
    for part in sorted_indices(lambda begin, end: row_of_pair[begin:end].astype(np.uint64) << unused_bits, number):
        pairs[filled : filled + len(part)] = order[part]
        sizes.append(np.unique(row_of_pair[part], return_counts=True)[1])
        filled += len(part)
    return pairs, np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(row_of_pair.dtype)


def longest_first(lengths: np.ndarray, pairs: np.ndarray, widths: Widths) -> tuple[np.ndarray, int]:
    """Pairs in the order of the space that they take, so that shorter ones fill the gaps; and lanes for ``pack_rows``."""
    filled = np.empty(len(pairs))
    for begin, end in blocks(len(pairs)):
        source, target = lengths_of(lengths, pairs[begin:end])
        filled[begin:end] = source / widths[0] + target / widths[1]
    lanes = max(round(filled.sum() / 2 / LANE_ROWS), 1)
    np.negative(filled, out=filled)
    # Ranks take half of the memory.
    values = np.unique(np.concatenate([np.unique(filled[begin:end]) for begin, end in blocks(len(pairs))]))
    ranks = np.empty(len(pairs), np.uint32)
    for begin, end in blocks(len(pairs)):
        ranks[begin:end] = np.searchsorted(values, filled[begin:end])
    del filled
    parts = sorted_indices(lambda begin, end: ranks[begin:end].astype(np.uint64) << np.uint64(32), len(pairs))
    return concatenated((pairs[part] for part in parts), len(pairs)), lanes


def lengths_of(lengths: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """``lengths[:, pairs]``, fast where both lengths of a pair are neighbors in memory (``np.asfortranarray``)."""
    return lengths.T.take(pairs, axis=0).T


def row_widths(lengths: np.ndarray, packed_length: int, multiple: int) -> list[Widths]:
    """Widths of rows, narrowest first: ``packed_length`` on the side with more tokens, doubled until the longest pair fits.

    The other side is narrower by the ratio of the tokens of both sides. Widths are multiples of ``multiple``: with 25 source
    tokens for 30 target tokens, ``packed_length`` 64 and multiples of 8, the first is (56, 64).
    """
    tokens = lengths.sum(axis=1, dtype=np.int64)
    longest = rounded_up(lengths.max(axis=1), multiple)
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
    """The pairs for rows of each of ``widths``, widest first, in ``order``: long pairs, completed by shorter ones.

    Rows of each width except the narrowest fill whole batches of ``tokens_per_update``, while shorter pairs remain.
    """
    for number in reversed(range(1, len(widths))):
        fits = np.empty(len(order), bool)
        for begin, end in blocks(len(order)):
            fits[begin:end] = (lengths_of(lengths, order[begin:end]) <= np.array(widths[number - 1])[:, None]).all(
                axis=0
            )
        long, order = order[~fits], order[fits]
        if not len(long):
            continue
        tokens = tokens_of(lengths, long) / 2
        # In the worst case each long pair has its own row.
        least = max(tokens, len(long) * sum(widths[number]) / 2 * FILLED)
        missing = math.ceil(least / tokens_per_update) * tokens_per_update - tokens
        taken, filling = 0, np.zeros(1)
        for begin, end in blocks(len(order)):
            if filling[-1] >= missing:
                break
            filling = filling[-1] + np.cumsum(lengths_of(lengths, order[begin:end]).sum(axis=0), dtype=np.int64) / 2
            taken = begin + int(np.searchsorted(filling, missing))
        yield np.concatenate([long, order[:taken]]), widths[number]
        order = order[taken:]
    if not len(order):
        return
    # Without a reference here, the caller can free the last pairs.
    last = [order]
    del order
    yield last.pop(), widths[0]


def tokens_of(lengths: np.ndarray, pairs: np.ndarray) -> int:
    """The tokens of both sides of some pairs."""
    return sum(int(lengths_of(lengths, pairs[begin:end]).sum(dtype=np.int64)) for begin, end in blocks(len(pairs)))
