"""Batches of source sentences of similar length, in few static shapes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import PAD_ID

WIDTH_STEP = 8
WIDTH_GROWTH = 1.25


class SourceBatch(NamedTuple):
    """Rows of source ids ``[R, S]`` int32 padded with PAD, and the ``indices`` of their sentences.

    ``indices`` are those of the first ``len(indices)`` rows; the rows after them are padding.
    """

    indices: np.ndarray
    ids: np.ndarray


def source_batches(
    sources: Sequence[np.ndarray | list[int]], *, batch_tokens: int, row_multiple: int = 1
) -> Iterator[SourceBatch]:
    """Yields every sentence exactly once, longest first (memory runs out at once or never), whole whatever its length.

    A batch has at most ``batch_tokens`` token positions, padding included, but at least ``row_multiple`` rows, and
    always a multiple of it. There are few shapes: widths are rounded up in growing steps, free rows are filled with
    shorter sentences, and only the last batch may have fewer rows, a power of two times ``row_multiple``. For ``[[5,
    2], [6, 7, 2]]`` and 16 tokens::

        indices [1, 0]
        ids     [[6, 7, 2, 0, 0, 0, 0, 0], [5, 2, 0, 0, 0, 0, 0, 0]]
    """
    order = sorted(range(len(sources)), key=lambda index: (-len(sources[index]), index))
    start = 0
    while start < len(order):
        width = padded_width(len(sources[order[start]]))
        most_rows = max(batch_tokens // width // row_multiple, 1) * row_multiple
        rows = min(most_rows, row_multiple * next_power_of_two(-(-(len(order) - start) // row_multiple)))
        indices = order[start : start + rows]
        ids = np.full((rows, width), PAD_ID, np.int32)
        for row, index in enumerate(indices):
            ids[row, : len(sources[index])] = sources[index]
        yield SourceBatch(np.asarray(indices, np.int64), ids)
        start += len(indices)


def padded_width(length: int) -> int:
    """Returns the smallest of the widths 8, 16, 24, ..., 64, 80, 96, 120, 144, ... that holds ``length`` tokens."""
    width = WIDTH_STEP
    while width < length:
        width = max(width + WIDTH_STEP, int(width * WIDTH_GROWTH) // WIDTH_STEP * WIDTH_STEP)
    return width


def next_power_of_two(number: int) -> int:
    """Returns the smallest power of two that is at least ``number``, itself at least 1."""
    return 1 << (number - 1).bit_length()
