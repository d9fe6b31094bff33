"""Sentences as rows of batches, for training and for scoring a whole split, in NumPy."""

from collections.abc import Iterator

import jax
import numpy as np

from transformer_jax.array_types import PAD_ID
from transformer_jax.config.data import MIN_WIDTH, one_of_two_widths
from transformer_jax.data.batch_plan import BatchPlan, BatchRows
from transformer_jax.data.buckets import rows_of
from transformer_jax.data.pair_encoding import Sentences
from transformer_jax.data.token_store import TokenStore
from transformer_jax.sequence_types import Batch, RowParts, Tokens

ALL_ROWS = RowParts((0,), 1)
SCORING_TOKENS = 4096
"""Positions of a batch in evaluation."""


def token_rows(sentences: Sentences, row_offsets: np.ndarray, width: int) -> Tokens:
    """Return rows of ``width``; row ``r`` holds sentences ``row_offsets[r]:row_offsets[r + 1]``.

    Example with 2, 0 and 1 sentences in three rows (``row_offsets`` [0, 2, 2, 3]) of width 6::

        ids 7 8 2  9 2  5 2     [[7, 8, 2, 9, 2, 0],  [0, 0, 0, 0, 0, 0],  [5, 2, 0, 0, 0, 0]]
        lengths 3 2 2           segments [[1, 1, 1, 2, 2, 0], ...]
                                positions [[0, 1, 2, 0, 1, 0], ...]

    Raises ValueError if the sentences of a row do not fit into it.
    """
    flat, lengths = sentences.ids, sentences.lengths.astype(np.int64)
    rows = len(row_offsets) - 1
    row_of_sentence = np.repeat(np.arange(rows), np.diff(row_offsets))
    begins = np.concatenate([[0], np.cumsum(lengths)])
    begin_in_row = begins[:-1] - begins[row_offsets[row_of_sentence]]
    if np.any(begin_in_row + lengths > width):
        raise ValueError(f"sentences do not fit into a row of {width} positions")
    position = np.arange(len(flat)) - np.repeat(begins[:-1], lengths)
    index = np.repeat(row_of_sentence * width + begin_in_row, lengths) + position
    segment = np.arange(len(lengths)) - row_offsets[row_of_sentence] + 1
    ids = np.full(rows * width, PAD_ID, np.int32)
    segments, positions = np.zeros_like(ids), np.zeros_like(ids)
    ids[index] = flat
    segments[index] = np.repeat(segment, lengths)
    positions[index] = position
    return Tokens(*(array.reshape(rows, width) for array in (ids, segments, positions)))


def read_rows(store: TokenStore, rows: BatchRows) -> Batch:
    (_, source_width, target_width), pairs, offsets = rows
    return Batch(
        token_rows(store.source_side.sentences(pairs), offsets, source_width),
        token_rows(store.target_side.sentences(pairs), offsets, target_width),
    )


def make_batch(store: TokenStore, plan: BatchPlan, update: int, parts: RowParts = ALL_ROWS) -> Batch:
    """Return the rows of an update, or some ``parts`` of them, without reading other rows."""
    whole = plan.batch(update)
    batches = [read_rows(store, whole.part(index, parts.num_parts)) for index in parts.indices]
    return batches[0] if len(batches) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)


def scoring_batches(
    store: TokenStore,
    batch_tokens: int,
    row_multiple: int,
    *,
    longest: int | None = None,
    limit: int = 0,
    few_shapes: bool = False,
    begin: int = 0,
) -> Iterator[Batch]:
    """Yield the pairs from ``begin``, up to ``limit`` if above 0, as ``scoring_rows``."""
    source, target = store.lengths(limit or None, begin)
    for rows in scoring_rows(source, target, batch_tokens, row_multiple, longest=longest, few_shapes=few_shapes):
        yield read_rows(store, rows._replace(pairs=rows.pairs + begin))


def scoring_rows(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    batch_tokens: int,
    row_multiple: int,
    *,
    longest: int | None = None,
    few_shapes: bool = False,
) -> Iterator[BatchRows]:
    """Assign pairs to batches, one a row, longest first: if memory is too small, the first fails.

    Widths are powers of two from 16, or two widths with ``few_shapes``, with one number of rows
    each, and at most ``longest``, the maximum length of the model. Shorter pairs fill the free rows
    of a batch, padding the free rows of the last batch.
    """
    longer_side = np.maximum(source_lengths, target_lengths)
    order = np.argsort(-longer_side.astype(np.int64), kind="stable")
    start = 0
    while start < len(order):
        length = int(longer_side[order[start]])
        width = max(MIN_WIDTH, 1 << (length - 1).bit_length())
        width = one_of_two_widths(length, int(longer_side[order[0]])) if few_shapes else width
        width = width if longest is None else max(min(width, longest), length)
        rows = rows_of(width, batch_tokens, row_multiple)
        pairs = order[start : start + rows]
        yield BatchRows((rows, width, width), pairs, np.minimum(np.arange(rows + 1), len(pairs)))
        start += rows
