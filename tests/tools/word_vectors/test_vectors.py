"""A table of word vectors: words found as written or in lower case, what cannot be a table refused."""

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.vectors import WordVectors


def table(*words):
    return WordVectors(words, np.arange(2 * len(words), dtype=np.float32).reshape(-1, 2))


def test_a_word_is_found_as_written_else_in_lower_case():
    vectors = table("us", "US", "paris")
    assert [vectors.find(word) for word in ("us", "US", "Us", "Paris", "PARIS", "Berlin")] == [0, 1, 0, 2, 2, None]
    rows, unknown = vectors.lookup(["Paris", "Rome", "us", "Oslo"])
    assert (rows, unknown) == ([2, 0], ["Rome", "Oslo"])
    with pytest.raises(DataError, match="'pairs' is not one of the 3 words; did you mean 'paris'"):
        vectors.row("pairs")
    assert vectors.first(2).words == ("us", "US")
    assert vectors.first(0) is vectors.first(9) is vectors


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        (["a", "b", "a"], np.zeros((3, 2), np.float32), "'a' is word 1 and word 3"),
        (["a", "b"], np.zeros((3, 2), np.float32), r"2 words for a matrix \[3, 2\]; expected a row"),
        ([], np.zeros((0, 2), np.float32), "0 words"),
        (["a"], np.zeros((1, 2)), "float64; expected float32"),
        (["a", "b"], np.array([[0, 1], [np.nan, 1]], np.float32), "the vector of 'b' has a value that is not finite"),
    ],
)
def test_what_is_no_table_is_refused(words, matrix, message):
    with pytest.raises(DataError, match=message):
        WordVectors(words, matrix)
