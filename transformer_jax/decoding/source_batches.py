"""Batches of source sentences of similar length, in few static shapes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import PAD_ID

FEWEST_COLUMNS = 16
# Each width and each number of rows is a program to compile, which has to be worth it.
FEWEST_STEPPED = 64
SHRINK = 4


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

    A batch has at most ``batch_tokens`` token positions, padding included, but at least ``row_multiple`` rows: a power of
    two times it. There are few shapes: widths are rounded up in growing steps, free rows are filled with shorter sentences,
    and only the last batch has fewer rows, a quarter of them, a sixteenth ..., as search has when sentences leave it.

    For ``[[5, 2], [6, 7, 2]]`` and 32 tokens: indices ``[1, 0]``, and two rows of 16 ids, ``[6, 7, 2, 0, ...]`` and
    ``[5, 2, 0, ...]``.
    """
    order = sorted(range(len(sources)), key=lambda index: (-len(sources[index]), index))
    start = 0
    while start < len(order):
        width = padded_width(len(sources[order[start]]))
        left = -(-(len(order) - start) // row_multiple)
        rows = row_multiple * fewest_rows(left, most_rows(width, batch_tokens, row_multiple) // row_multiple)
        indices = order[start : start + rows]
        ids = np.full((rows, width), PAD_ID, np.int32)
        for row, index in enumerate(indices):
            ids[row, : len(sources[index])] = sources[index]
        yield SourceBatch(np.asarray(indices, np.int64), ids)
        start += len(indices)


def most_rows(width: int, batch_tokens: int, row_multiple: int = 1) -> int:
    """Rows of a full batch: a power of two times ``row_multiple``, with at most ``batch_tokens`` positions unless it is one."""
    most = max(batch_tokens // width // row_multiple, 1)
    return row_multiple * (1 << (most.bit_length() - 1))


def padded_width(length: int, longest: int | None = None) -> int:
    """Returns the smallest of the widths 16, 32, 64, 96, 128, 192, 256, ... that holds ``length`` tokens.

    Of a model that reads at most ``longest`` tokens it is no more than that, but never less than ``length``.
    """
    power = max(next_power_of_two(max(length, 1)), FEWEST_COLUMNS)
    width = power * 3 // 4 if power > FEWEST_STEPPED and length <= power * 3 // 4 else power
    return width if longest is None else max(min(width, longest), length)


def fewest_rows(needed: int, rows: int) -> int:
    """``rows``, a quarter of them, a sixteenth ...: the fewest that hold ``needed``."""
    while rows % SHRINK == 0 and needed <= rows // SHRINK:
        rows //= SHRINK
    return rows


def next_power_of_two(number: int) -> int:
    """Returns the smallest power of two that is at least ``number``, itself at least 1."""
    return 1 << (number - 1).bit_length()
