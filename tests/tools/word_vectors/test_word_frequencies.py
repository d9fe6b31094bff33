"""What follows from how often words are: subsampling, negatives, the Huffman tree; small cases by hand."""

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.task.frequencies import (
    counts_of_words,
    keep_probabilities,
    negative_table,
    random_bits,
)
from transformer_jax.tools.word_vectors.task.huffman import huffman_tree

SPECIAL = [7, 7, 7, 7]


def test_the_tree_of_five_words_is_the_one_drawn_by_hand():
    """Weights 15, 7, 6, 6, 5: the example of many textbooks; ways of 1, 3, 3, 3 and 3 turns, 87 turns in all."""
    counts = np.array([0, 0, 0, 0, 15, 7, 6, 6, 5])
    tree = huffman_tree(counts)
    assert tree.lengths.tolist() == [0, 0, 0, 0, 1, 3, 3, 3, 3]
    assert int(tree.lengths @ counts) == 87
    # The root is node 0; 15 hangs on it to the left, 5 + 6 and 6 + 7 on its other child.
    assert tree.nodes[4, 0] == 0
    assert tree.turns[4].tolist() == [1, 0, 0]
    assert all(way.tolist()[:2] == [0, 1] for way in tree.nodes[5:])
    ways = {tuple(turns) for turns in tree.turns[4:].tolist()}
    assert len(ways) == 5
    assert set(tree.nodes.ravel().tolist()) == {0, 1, 2, 3}


def test_probabilities_of_all_words_add_up_to_one_by_the_tree():
    """Of any scores: each inner node splits what reaches it."""
    tree = huffman_tree(np.array([0, 0, 0, 0, 3, 1, 4, 1, 5, 9, 2, 6]))
    scores = np.random.default_rng(0).normal(size=20)
    turns = tree.turns[4:].astype(float)
    of_turns = np.where(turns != 0, 1 / (1 + np.exp(-turns * scores[tree.nodes[4:]])), 1.0)
    assert of_turns.prod(axis=1).sum() == pytest.approx(1.0)


def test_frequent_words_are_left_out_by_the_formula_of_word2vec():
    """Frequencies 0.9, 0.09 and 0.01, t = 0.01: sqrt(t / f) + t / f."""
    kept = keep_probabilities(np.array([0, 0, 0, 0, 90, 9, 1]), 0.01)
    assert kept[4:] == pytest.approx([0.105409 + 0.011111, 0.333333 + 0.111111, 1.0], abs=1e-5)
    assert not kept[:4].any()
    assert keep_probabilities(np.array([0, 0, 0, 0, 90, 9, 0]), 0.0).tolist() == [0, 0, 0, 0, 1, 1, 0]


def test_negatives_are_drawn_by_the_count_to_the_power_of_three_quarters():
    counts = np.array([0, 0, 0, 0, 81, 0, 16, 1])
    drawn = negative_table(counts).draw(random_bits(3, 0, 2)(400_000))
    shares = np.bincount(drawn, minlength=8) / len(drawn)
    assert shares == pytest.approx(np.array([0, 0, 0, 0, 27, 0, 8, 1]) / 36, abs=0.003)
    assert drawn.tolist() == negative_table(counts).draw(random_bits(3, 0, 2)(400_000)).tolist()


@pytest.mark.parametrize(
    ("counts", "min_count", "message"),
    [
        ([*SPECIAL, 4, 2], 5, r"no word occurs 5 times; the most frequent one does 4 times"),
        ([*SPECIAL], 1, r"no word occurs 1 times; the most frequent one does 0 times"),
        ([*SPECIAL, 9, 2], 5, "a single word is left"),
    ],
)
def test_a_vocabulary_that_teaches_nothing_is_refused(counts, min_count, message):
    with pytest.raises(DataError, match=message):
        counts_of_words(np.array(counts), min_count)


def test_special_ids_and_rare_words_have_no_count():
    assert counts_of_words(np.array([*SPECIAL, 5, 4, 6]), 5).tolist() == [0, 0, 0, 0, 5, 0, 6]
