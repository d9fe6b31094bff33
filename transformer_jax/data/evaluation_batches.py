"""Batches of a whole split, in few static shapes, nothing left out: for teacher-forced scoring, without TensorFlow."""

from collections.abc import Iterator

import numpy as np

from transformer_jax.data.batch_arrays import token_rows
from transformer_jax.data.token_store import TokenStore
from transformer_jax.sequence_types import Batch

NARROWEST = 16


def scoring_batches(store: TokenStore, batch_tokens: int, row_multiple: int, *, limit: int = 0) -> Iterator[Batch]:
    """Every pair of ``store`` (the first ``limit`` if above 0) once, a pair a row, similar lengths together.

    Widths are powers of two; each width has one number of rows, and its last batch is completed with rows of padding.
    """
    number = min(limit, store.num_pairs) if limit else store.num_pairs
    widest = np.maximum(store.source_lengths[:number], store.target_lengths[:number])
    widths = np.maximum(NARROWEST, 2 ** np.ceil(np.log2(np.maximum(widest, 1))).astype(np.int64))
    for width in np.unique(widths).tolist():
        members = np.flatnonzero(widths == width)
        rows = max(batch_tokens // width // row_multiple, 1) * row_multiple
        for start in range(0, len(members), rows):
            pairs = [members[index : index + 1] for index in range(start, start + rows)]
            yield Batch(token_rows(pairs, store.source, width), token_rows(pairs, store.target, width))
