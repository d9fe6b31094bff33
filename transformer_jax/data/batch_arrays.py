"""Token rows of a batch as arrays."""

from collections.abc import Callable, Sequence

import numpy as np

from transformer_jax.array_types import PAD_ID
from transformer_jax.sequence_types import Tokens


def token_rows(rows: Sequence[np.ndarray], read: Callable[[int], np.ndarray], width: int) -> Tokens:
    """Rows of ``width`` positions: the sentences that ``read`` returns for the pairs of each row, one after another."""
    ids = np.full((len(rows), width), PAD_ID, np.int32)
    segments = np.zeros_like(ids)
    positions = np.zeros_like(ids)
    for row, pairs in enumerate(rows):
        start = 0
        for segment, pair in enumerate(pairs, start=1):
            sentence = read(int(pair))
            end = start + len(sentence)
            ids[row, start:end] = sentence
            segments[row, start:end] = segment
            positions[row, start:end] = np.arange(len(sentence))
            start = end
    return Tokens(ids, segments, positions)
