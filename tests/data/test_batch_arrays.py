import numpy as np
import pytest

from transformer_jax.data.batch_arrays import token_rows
from transformer_jax.data.tokenizers.pair_encoding import Sentences
from transformer_jax.sequence_types import Tokens


def sentences(*rows):
    lengths = np.array([len(row) for row in rows], np.int32)
    return Sentences(np.array([token for row in rows for token in row], np.int32), lengths)


def test_packed_rows():
    rows = token_rows(sentences([7, 8, 2], [9, 2], [5, 2]), np.array([0, 2, 2, 3]), width=6)
    assert rows.ids.tolist() == [[7, 8, 2, 9, 2, 0], [0, 0, 0, 0, 0, 0], [5, 2, 0, 0, 0, 0]]
    assert rows.segments.tolist() == [[1, 1, 1, 2, 2, 0], [0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert rows.positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    assert {array.dtype for array in rows} == {np.dtype(np.int32)}


def test_a_sentence_a_row_is_what_from_ids_makes():
    rows = token_rows(sentences([7, 8, 2], [9, 2]), np.array([0, 1, 2, 2]), width=4)
    for array, expected in zip(rows, Tokens.from_ids(rows.ids), strict=True):
        np.testing.assert_array_equal(array, expected)


def test_only_padding():
    assert not token_rows(sentences(), np.zeros(3, np.int64), width=4).ids.any()


@pytest.mark.parametrize("width", [4, 2])
def test_nothing_is_cut(width):
    with pytest.raises(ValueError, match=f"row of {width} positions"):
        token_rows(sentences([7, 8, 2], [9, 2]), np.array([0, 2]), width=width)
