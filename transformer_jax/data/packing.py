"""Packing: several pairs a row, so that almost nothing is padding (Raffel et al. 2020, section 3.1.1)."""

import numpy as np

# How many rows are open at once: more of them pack tighter and slower.
OPEN_ROWS = 64


def pack_rows(
    source_lengths: np.ndarray, target_lengths: np.ndarray, order: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of pairs whose sources, and whose targets, fit into ``width`` positions together.

    Pairs are taken in ``order``; each goes into the open row that it fills best. Returns the pairs, row after row, and the
    offsets [rows + 1] of the rows among them. Raises ValueError for a pair that fits into no row.
    """
    if len(order) and max(source_lengths.max(), target_lengths.max()) > width:
        raise ValueError(f"a pair is longer than the {width} positions of a row")
    rows: list[list[int]] = []
    open_ids = np.empty(0, np.int64)
    room = np.empty((0, 2), np.int64)
    for pair in order.tolist():
        need = np.array([source_lengths[pair], target_lengths[pair]])
        left = room - need[None, :]
        tightness = np.where(left.min(axis=1) >= 0, left.max(axis=1), width + 1) if len(room) else np.empty(0)
        best = int(tightness.argmin()) if len(room) else -1
        if best >= 0 and tightness[best] <= width:
            room[best] = left[best]
            rows[open_ids[best]].append(pair)
            continue
        if len(room) == OPEN_ROWS:
            fullest = int(room.max(axis=1).argmin())
            room, open_ids = np.delete(room, fullest, axis=0), np.delete(open_ids, fullest)
        room = np.concatenate([room, (width - need)[None, :]])
        open_ids = np.append(open_ids, len(rows))
        rows.append([pair])
    offsets = np.cumsum([0, *(len(row) for row in rows)])
    return np.array([pair for row in rows for pair in row], np.int64), offsets
