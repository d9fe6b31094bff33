"""Batches of source sentences of similar length, in few static shapes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import PAD_ID
from transformer_jax.config.data import one_of_two_widths, padded_width

# Each number of rows, and each width, is a program to compile, which has to pay.
SHRINK = 4
MIN_BATCHES = 4


class SourceBatch(NamedTuple):
    """Rows of source ids ``[R, S]`` int32; row i is sentence ``indices[i]``, later rows padding."""

    indices: np.ndarray
    ids: np.ndarray


def source_batches(
    sources: Sequence[np.ndarray | list[int]],
    *,
    batch_tokens: int,
    row_multiple: int = 1,
    max_rows: int | None = None,
    few_shapes: bool = False,
    longest: int | None = None,
) -> Iterator[SourceBatch]:
    """Yield every sentence once, longest first (memory runs out at once or never), never cut.

    The rows are a power of two times ``row_multiple``, the number of devices that share them. A
    device has at most ``max_rows`` and ``batch_tokens`` token positions, padding included, but at
    least one row. There are few shapes: widths are rounded up in growing steps, and up to four
    times if less than ``MIN_BATCHES`` batches are left. Free rows are filled with shorter
    sentences. Only the last batch has fewer rows, a quarter, a sixteenth ..., as the search has
    when sentences leave it. With ``few_shapes`` there are at most two widths, with one number of
    rows. ``longest``: maximum length of a sequence of the model, which limits the widths, or None.

    For ``[[5, 2], [6, 7, 2]]`` and 32 tokens: indices ``[1, 0]``, and two rows of 16 ids, ``[6, 7,
    2, 0, ...]`` and ``[5, 2, 0, ...]``.
    """
    order = sorted(range(len(sources)), key=lambda index: (-len(sources[index]), index))
    start = width = rows = 0
    while start < len(order):
        left = -(-(len(order) - start) // row_multiple)
        before, length = width, len(sources[order[start]])
        needed = one_of_two_widths(length, len(sources[order[0]])) if few_shapes else padded_width(length)
        needed = needed if longest is None else max(min(needed, longest), length)
        is_few = not few_shapes and left < MIN_BATCHES * rows_of_full_batch(max(width, 1), batch_tokens, max_rows)
        width = width if is_few and needed <= width <= SHRINK * needed else needed
        full = rows_of_full_batch(width, batch_tokens, max_rows)
        rows = rows if few_shapes and width == before else row_multiple * rows_that_hold(left, full)
        indices = order[start : start + rows]
        ids = np.full((rows, width), PAD_ID, np.int32)
        for row, index in enumerate(indices):
            ids[row, : len(sources[index])] = sources[index]
        yield SourceBatch(np.asarray(indices, np.int64), ids)
        start += len(indices)


def rows_of_full_batch(width: int, batch_tokens: int, max_rows: int | None = None) -> int:
    """Return the rows of a device, a power of two.

    At most ``max_rows`` rows and ``batch_tokens`` positions, but at least one row.
    """
    limit = min(max(batch_tokens // width, 1), max_rows or batch_tokens)
    return 1 << (limit.bit_length() - 1)


def rows_that_hold(needed: int, rows: int) -> int:
    """Return the least number of rows that holds ``needed``: ``rows``, a quarter, a sixteenth ...

    ``rows`` is a power of two.
    """
    while rows > 1 and needed <= max(rows // SHRINK, 1):
        rows = max(rows // SHRINK, 1)
    return rows
