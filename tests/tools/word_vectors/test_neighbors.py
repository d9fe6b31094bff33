"""Exact search: as sorting all cosines, whatever the blocks; analogies leave the words of the question out."""

import numpy as np
import pytest
from tools.word_vectors.word_vectors_settings import ROYAL

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors import neighbors
from transformer_jax.tools.word_vectors.neighbors import analogy, nearest_words, neighbors_of_rows, search
from transformer_jax.tools.word_vectors.projection import project
from transformer_jax.tools.word_vectors.vectors import WordVectors


@pytest.mark.parametrize("count", [5, 40])
@pytest.mark.parametrize("queries", [1024, 3])
def test_search_is_sorting_all_cosines(count, queries, monkeypatch):
    monkeypatch.setattr(neighbors, "QUERIES_AT_ONCE", queries)
    random = np.random.default_rng(0)
    matrix = random.integers(-2, 3, size=(40, 4)).astype(np.float32)  # with equal rows, and some of zeros
    matrix[3] = matrix[11] = 0
    asked = random.normal(size=(8, 4)).astype(np.float32)
    excluded = random.integers(0, 40, size=(8, 3))
    rows, found = search(matrix, asked, count, excluded)
    # An integer grid: cosines of equal rows are equal to the last bit only if computed alike, so they are rounded.
    norms = np.linalg.norm(matrix, axis=1)
    unit = matrix / np.where(norms > 0, norms, 1)[:, None]
    cosines = asked / np.linalg.norm(asked, axis=1, keepdims=True) @ unit.T
    for query, left_out in enumerate(excluded.tolist()):
        allowed = [row for row in range(40) if row not in left_out]
        best = sorted(cosines[query, allowed].tolist(), reverse=True)[:count]
        first = rows[query, : len(best)]
        np.testing.assert_allclose(found[query, : len(best)], best, atol=1e-6)
        np.testing.assert_allclose(cosines[query, first], best, atol=1e-6)
        assert len({*first.tolist()} - {*left_out}) == len(best)
        assert np.isneginf(found[query, len(best) :]).all()


def test_neighbors_and_analogies():
    assert [found.word for found in nearest_words(ROYAL, "King", 2)] == ["queen", "man"]
    assert nearest_words(ROYAL, "king", 2)[0].cosine == pytest.approx(2 / 6**0.5)
    assert len(nearest_words(ROYAL, "king", 50)) == 4
    best = analogy(ROYAL, "man", "king", "woman", 9)
    assert [found.word for found in best] == ["queen", "apple"]
    # b - a + c of unit vectors, not of the vectors as they are (which would be [1, 1, 1] here, a cosine of 1).
    target = np.array([1, 0, 1]) / 2**0.5 - np.array([1, 0, 0]) + np.array([1, 1, 0]) / 2**0.5
    assert best[0].cosine == pytest.approx(target.sum() / np.linalg.norm(target) / 3**0.5, abs=1e-6)
    assert [near[0].word for near in neighbors_of_rows(ROYAL, [2, 0], 9)] == ["queen", "woman"]
    with pytest.raises(DataError, match="'quean' is not one of the 5 words; did you mean 'queen'"):
        analogy(ROYAL, "man", "king", "quean", 1)


def test_too_little_for_a_map():
    with pytest.raises(DataError, match=r"at least three words and two dimensions, found \[2, 5\]"):
        project(np.eye(2, 5, dtype=np.float32), "pca")


def test_a_word_has_a_row_and_is_found_as_written_else_in_lower_case():
    vectors = WordVectors(("us", "US", "paris"), np.arange(6, dtype=np.float32).reshape(3, 2))
    assert [vectors.find(word) for word in ("us", "US", "Us", "Paris", "PARIS", "Berlin")] == [0, 1, 0, 2, 2, None]
    assert vectors.lookup(["Paris", "Rome", "us", "Oslo"]) == ([2, 0], ["Rome", "Oslo"])
    pieces = WordVectors(("in", "▁in", "ing"), vectors.matrix)
    assert [pieces.find(word) for word in ("in", "In", "▁in", "ing")] == [1, 1, 1, 2]
    assert vectors.first(2).words == ("us", "US")
    assert vectors.first(0) is vectors.first(9) is vectors
    with pytest.raises(DataError, match=r"2 words for a matrix \[3, 2\]; expected a row"):
        WordVectors(["a", "b"], np.zeros((3, 2), np.float32))
