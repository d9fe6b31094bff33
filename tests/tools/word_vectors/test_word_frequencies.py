"""Subsampling and negatives, which follow from word counts; small cases by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.task.text_blocks import (
    counts_of_words,
    keep_probabilities,
    negative_table,
    random_bits,
)


def test_frequent_words_are_left_out_by_the_formula_of_word2vec():
    """Frequencies 0.9, 0.09 and 0.01, t = 0.01: sqrt(t / f) + t / f."""
    kept = keep_probabilities(np.array([0, 0, 0, 0, 90, 9, 1]), 0.01)
    assert kept[4:] == pytest.approx([0.105409 + 0.011111, 0.333333 + 0.111111, 1.0], abs=1e-5)
    assert not kept[:4].any()
    assert keep_probabilities(np.array([0, 0, 0, 0, 90, 9, 0]), 0.0).tolist() == [0, 0, 0, 0, 1, 1, 0]


def test_negatives_are_sampled_by_the_count_to_the_power_of_three_quarters():
    sampled = negative_table(np.array([0, 0, 0, 0, 81, 0, 16, 1])).sample(random_bits(3, 0, 2)(200_000))
    shares = np.bincount(sampled, minlength=8) / len(sampled)
    assert shares == pytest.approx(np.array([0, 0, 0, 0, 27, 0, 8, 1]) / 36, abs=0.005)


def test_special_ids_and_rare_words_have_no_count():
    def counted(*words, least):
        ids = np.repeat(np.arange(4 + len(words)), [7, 7, 7, 7, *words])
        return counts_of_words(SimpleNamespace(ids=ids, num_tokens=len(ids)), 4 + len(words), least).tolist()

    assert counted(5, 4, 6, least=5) == [0, 0, 0, 0, 5, 0, 6]
    with pytest.raises(DataError, match="no word occurs 5 times, at most 4 times"):
        counted(4, 2, least=5)
    with pytest.raises(DataError, match="only one word is left"):
        counted(9, 2, least=5)
