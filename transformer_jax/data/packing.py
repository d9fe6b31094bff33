"""Packing: several pairs a row, so that almost nothing is padding (Raffel et al. 2020, section 3.1.1)."""

import numpy as np

# How many rows of a lane are open at once: more of them pack tighter and slower.
OPEN_ROWS = 64
# Pairs of one lane; lanes are packed side by side, independently. Longer lanes pack tighter and slower.
LANE_PAIRS = 8192


def pack_rows(
    source_lengths: np.ndarray, target_lengths: np.ndarray, order: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of pairs whose sources, and whose targets, fit into ``width`` positions together: windowed best fit.

    Pairs are taken in ``order``; each goes into the open row that it fills best, and where none has room the fullest is
    closed for a new one. Returns the pairs, row after row, and the offsets ``[rows + 1]`` of the rows among them. With
    lengths [3, 2, 4] on both sides and width 5: pairs [0, 1, 2], offsets [0, 2, 3]. Time is linear in the pairs.
    Raises ValueError for a pair that fits into no row.
    """
    number = len(order)
    needs = np.stack([source_lengths, target_lengths], axis=-1).astype(np.int32)
    if number and needs[order].max() > width:
        raise ValueError(f"a pair is longer than the {width} positions of a row")
    lanes = max(number // LANE_PAIRS, 1)
    room = np.full((lanes, OPEN_ROWS, 2), width, np.int32)
    open_rows = np.arange(lanes * OPEN_ROWS).reshape(lanes, OPEN_ROWS)
    next_row = open_rows.size
    row_of_pair = np.zeros(number, np.int64)
    for start in range(0, number, lanes):
        pairs = order[start : start + lanes]
        lane = np.arange(len(pairs))
        left = room[: len(pairs)] - needs[pairs][:, None, :]
        most_left = np.where(left.min(axis=-1) >= 0, left.max(axis=-1), width + 1)
        slot = most_left.argmin(axis=1)
        nowhere = np.flatnonzero(most_left[lane, slot] > width)
        if len(nowhere):
            slot[nowhere] = room[nowhere].max(axis=-1).argmin(axis=1)
            room[nowhere, slot[nowhere]] = width
            open_rows[nowhere, slot[nowhere]] = next_row + np.arange(len(nowhere))
            next_row += len(nowhere)
        room[lane, slot] -= needs[pairs]
        row_of_pair[start : start + lanes] = open_rows[lane, slot]
    by_row = np.argsort(row_of_pair, kind="stable")
    sizes = np.unique(row_of_pair, return_counts=True)[1]
    return order[by_row], np.concatenate([[0], np.cumsum(sizes)])
