"""Sentences as the rows of a batch."""

import numpy as np

from transformer_jax.array_types import PAD_ID
from transformer_jax.data.tokenizers.pair_encoding import Sentences
from transformer_jax.sequence_types import Tokens


def token_rows(sentences: Sentences, row_offsets: np.ndarray, width: int) -> Tokens:
    """Rows of ``width`` positions; row ``r`` holds sentences ``row_offsets[r]`` up to ``row_offsets[r + 1]``.

    Three sentences in rows of 2, 0 and 1, that is ``row_offsets`` [0, 2, 2, 3], and width 6::

        ids 7 8 2  9 2  5 2     [[7, 8, 2, 9, 2, 0],  [0, 0, 0, 0, 0, 0],  [5, 2, 0, 0, 0, 0]]
        lengths 3 2 2           segments [[1, 1, 1, 2, 2, 0], ...]  positions [[0, 1, 2, 0, 1, 0], ...]

    Raises ValueError when the sentences of a row do not fit into it: nothing is ever cut.
    """
    flat, lengths = sentences.ids, sentences.lengths.astype(np.int64)
    rows = len(row_offsets) - 1
    row_of_sentence = np.repeat(np.arange(rows), np.diff(row_offsets))
    begins = np.concatenate([[0], np.cumsum(lengths)])
    begin_in_row = begins[:-1] - begins[row_offsets[row_of_sentence]]
    if np.any(begin_in_row + lengths > width):
        raise ValueError(f"sentences do not fit into a row of {width} positions")
    position = np.arange(len(flat)) - np.repeat(begins[:-1], lengths)
    place = np.repeat(row_of_sentence * width + begin_in_row, lengths) + position
    segment = np.arange(len(lengths)) - row_offsets[row_of_sentence] + 1
    ids = np.full(rows * width, PAD_ID, np.int32)
    segments, positions = np.zeros_like(ids), np.zeros_like(ids)
    ids[place] = flat
    segments[place] = np.repeat(segment, lengths)
    positions[place] = position
    return Tokens(*(array.reshape(rows, width) for array in (ids, segments, positions)))
