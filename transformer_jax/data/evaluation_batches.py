"""Batches of a whole split, in few static shapes, nothing left out: for teacher-forced scoring, without TensorFlow."""

from collections.abc import Iterator

import numpy as np

from transformer_jax.config.data import one_of_two_widths
from transformer_jax.data.batch_arrays import token_rows
from transformer_jax.data.batch_plan import BatchRows
from transformer_jax.data.buckets import rows_of
from transformer_jax.data.token_store import TokenStore
from transformer_jax.sequence_types import Batch

NARROWEST = 16


def scoring_batches(
    store: TokenStore, batch_tokens: int, row_multiple: int, *, limit: int = 0, few_shapes: bool = False
) -> Iterator[Batch]:
    """Every pair of ``store`` (the first ``limit`` if above 0) exactly once, a pair a row, as ``scoring_rows`` plans."""
    number = min(limit, store.num_pairs) if limit else store.num_pairs
    lengths = store.source_lengths[:number], store.target_lengths[:number]
    plan = scoring_rows(*lengths, batch_tokens, row_multiple, few_shapes=few_shapes)
    for (_, source_width, target_width), pairs, offsets in plan:
        yield Batch(
            token_rows(store.source_side.sentences(pairs), offsets, source_width),
            token_rows(store.target_side.sentences(pairs), offsets, target_width),
        )


def scoring_rows(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    batch_tokens: int,
    row_multiple: int,
    *,
    few_shapes: bool = False,
) -> Iterator[BatchRows]:
    """Assignment of pairs to rows of batches, longest first: memory runs out at once or never.

    Widths are powers of two from 16 on, or two with ``few_shapes``, each with one number of rows, so there are few shapes;
    free rows of a batch are filled with shorter pairs, and those of the last one with padding.
    """
    longer_side = np.maximum(source_lengths, target_lengths)
    order = np.argsort(-longer_side.astype(np.int64), kind="stable")
    start = 0
    while start < len(order):
        length = int(longer_side[order[start]])
        width = max(NARROWEST, 1 << (length - 1).bit_length())
        width = one_of_two_widths(length, int(longer_side[order[0]])) if few_shapes else width
        rows = rows_of(width, batch_tokens, row_multiple)
        pairs = order[start : start + rows]
        yield BatchRows((rows, width, width), pairs, np.minimum(np.arange(rows + 1), len(pairs)))
        start += rows
