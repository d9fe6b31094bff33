"""Packing: several pairs in each row, with little padding (Raffel et al. 2020, section 3.1.1)."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from transformer_jax.data.buckets import rounded_up

Widths = tuple[int, int]
"""Positions of a row: source side, target side."""

# Open rows of a lane; with more of them packing is tighter and slower.
OPEN_ROWS = 64
# Pairs of a lane in random order; lanes are packed independently, in one vectorized loop.
LANE_PAIRS = 8192
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
    number = len(order)
    needs = lengths[:, order].astype(np.int32)
    width = np.array(widths, np.int32)[:, None]
    if (needs > width).any():
        raise ValueError(f"a pair is longer than the {widths} positions of a row")
    lanes = lanes or max(number // LANE_PAIRS, 1)
    free = np.broadcast_to(width[:, :, None], (2, lanes, OPEN_ROWS)).copy()
    open_rows = np.arange(lanes * OPEN_ROWS).reshape(lanes, OPEN_ROWS)
    next_row = open_rows.size
    row_of_pair = np.zeros(number, np.int64)
    none = max(widths) + 1
    for start in range(0, number, lanes):
        needed = needs[:, start : start + lanes]
        lane = np.arange(needed.shape[1])
        source_left, target_left = free[:, : len(lane)] - needed[:, :, None]
        fits = np.minimum(source_left, target_left) >= 0
        slot = np.where(fits, np.maximum(source_left, target_left), none).argmin(axis=1)
        full = np.flatnonzero(~fits[lane, slot])
        if len(full):
            slot[full] = free[:, full].max(axis=0).argmin(axis=1)
            free[:, full, slot[full]] = width
            open_rows[full, slot[full]] = next_row + np.arange(len(full))
            next_row += len(full)
        free[:, lane, slot] -= needed
        row_of_pair[start : start + lanes] = open_rows[lane, slot]
    by_row = np.argsort(row_of_pair, kind="stable")
    sizes = np.unique(row_of_pair, return_counts=True)[1]
    return order[by_row], np.concatenate([[0], np.cumsum(sizes)])


def pack_tightly(lengths: np.ndarray, order: np.ndarray, widths: Widths) -> tuple[np.ndarray, np.ndarray]:
    """``pack_rows`` with longer pairs first, so that shorter ones fill the gaps."""
    filled = lengths[0, order] / widths[0] + lengths[1, order] / widths[1]
    order = order[np.argsort(-filled, kind="stable")]
    return pack_rows(lengths, order, widths, lanes=max(round(filled.sum() / 2 / LANE_ROWS), 1))


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
        fits = (lengths[:, order] <= np.array(widths[number - 1])[:, None]).all(axis=0)
        long, short = order[~fits], order[fits]
        if not len(long):
            continue
        tokens = lengths[:, long].sum(dtype=np.int64) / 2
        # In the worst case each long pair has its own row.
        least = max(tokens, len(long) * sum(widths[number]) / 2 * FILLED)
        missing = math.ceil(least / tokens_per_update) * tokens_per_update - tokens
        filling = np.cumsum(lengths[:, short].sum(axis=0), dtype=np.int64) / 2
        end = int(np.searchsorted(filling, missing))
        yield np.concatenate([long, short[:end]]), widths[number]
        order = short[end:]
    if len(order):
        yield order, widths[0]
