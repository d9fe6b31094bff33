"""The blocked losses of word2vec against loops over pairs; counts, subsampling and negatives by
hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tools.word_vectors.word_vectors_settings import loss_of_tables

from transformer_jax.array_types import EOS_ID, PAD_ID
from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.task import text_blocks
from transformer_jax.tools.word_vectors.task.text_blocks import counts_of_words, keep_probabilities, negative_table
from transformer_jax.tools.word_vectors.task.word2vec import CbowNegative, SkipGramNegative, TextBlock, pair_mask
from transformer_jax.tools.word_vectors.task.word_vector_settings import Word2vecConfig

D, WINDOW, NEGATIVES, SHARED = 5, 2, 3, 4
# Two rows of five centers, with two words more on each side; a document ends in the first, the
# second is padded.
WORDS = np.array([[4, 5, 6, EOS_ID, 7, 8, 4, 9, 5], [6, 9, 4, 4, 7, PAD_ID, PAD_ID, PAD_ID, PAD_ID]], np.int32)
REACH = np.array([[1, 2, 2, 1, 2], [2, 1, 2, 1, 1]], np.int32)
DRAWN = np.array([[4, 9, 9, 6], [5, 7, 4, 8]], np.int32)


def pairs_by_hand():
    """(row, center, context): positions among the centers and among all words of the row."""
    for row in range(2):
        for center in range(5):
            for step in (-1, 1):
                for distance in range(1, REACH[row, center] + 1):
                    context = WINDOW + center + step * distance
                    if WORDS[row, WINDOW + center] < 4 or WORDS[row, context] < 4:
                        break
                    yield row, center, context


def log_sigmoid(x):
    return -jnp.logaddexp(0.0, -x)


def naive(kind, table, outputs):
    """The loss of all pairs, one after another. Sums of CBOW's windows stand for means whose
    gradient is not divided."""
    total, pairs = 0.0, list(pairs_by_hand())
    examples = [(row, center, [context]) for row, center, context in pairs]
    if kind == "cbow":
        windows = sorted({(row, center) for row, center, _ in pairs})
        examples = [(r, c, [p for row, center, p in pairs if (row, center) == (r, c)]) for r, c in windows]
    for row, center, contexts in examples:
        word = WORDS[row, WINDOW + center]
        vectors = table[WORDS[row, np.array(contexts)]]
        mean = jax.lax.stop_gradient(vectors.mean(0) - vectors.sum(0)) + vectors.sum(0)
        asks, asked = (mean, word) if kind == "cbow" else (table[word], WORDS[row, contexts[0]])
        total -= log_sigmoid(outputs[asked] @ asks)
        total -= NEGATIVES / SHARED * sum(log_sigmoid(-outputs[other] @ asks) for other in DRAWN[row])
    return total


@pytest.mark.parametrize(("kind", "objective"), [("skip_gram", SkipGramNegative), ("cbow", CbowNegative)])
def test_loss_and_gradient_of_a_block_are_those_of_its_pairs_one_by_one(kind, objective):
    config = Word2vecConfig(kind, d_model=D, window=WINDOW, negatives=NEGATIVES, shared_negatives=SHARED)
    block = TextBlock(WORDS, REACH, DRAWN)
    tables = [jax.random.normal(jax.random.key(seed), (10, D)) for seed in (1, 2)]

    def blocked(table, outputs):
        return loss_of_tables(
            objective(config), block, {"embedding": {"table": table}, "projection": {"table": outputs}}
        )

    expected, gradients = jax.value_and_grad(lambda *both: naive(kind, *both), (0, 1))(*tables)
    blocks, blocked_gradients = jax.jit(jax.value_and_grad(blocked, (0, 1)))(*tables)
    assert blocks == pytest.approx(float(expected), rel=1e-5)
    for left, right in zip(blocked_gradients, gradients, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_a_window_ends_where_its_document_ends():
    mask = np.asarray(pair_mask(jnp.asarray(WORDS), jnp.asarray(REACH)))
    assert {tuple(map(int, pair)) for pair in np.argwhere(mask)} == set(pairs_by_hand())


def test_frequent_words_are_left_out_by_the_formula_of_word2vec():
    """Frequencies 0.9, 0.09 and 0.01, t = 0.01: sqrt(t / f) + t / f."""
    kept = keep_probabilities(np.array([0, 0, 0, 0, 90, 9, 1]), 0.01)
    assert kept[4:] == pytest.approx([0.105409 + 0.011111, 0.333333 + 0.111111, 1.0], abs=1e-5)
    assert not kept[:4].any()
    assert keep_probabilities(np.array([0, 0, 0, 0, 90, 9, 0]), 0.0).tolist() == [0, 0, 0, 0, 1, 1, 0]


def test_negatives_are_sampled_by_the_count_to_the_power_of_three_quarters():
    sampled = negative_table(np.array([0, 0, 0, 0, 81, 0, 16, 1])).sample(text_blocks.random_bits(3, 0, 2)(200_000))
    shares = np.bincount(sampled, minlength=8) / len(sampled)
    assert shares == pytest.approx(np.array([0, 0, 0, 0, 27, 0, 8, 1]) / 36, abs=0.005)


def test_special_ids_and_rare_words_have_no_count():
    def counted(*words, least):
        ids = np.repeat(np.arange(4 + len(words)), [7, 7, 7, 7, *words])
        return counts_of_words(SimpleNamespace(ids=ids, num_tokens=len(ids)), 4 + len(words), least).tolist()

    assert counted(5, 4, 6, least=5) == [0, 0, 0, 0, 5, 0, 6]
    with pytest.raises(DataError, match="only 1 of 2 words occur 5 times or more; set it to 2 or less"):
        counted(9, 2, least=5)
    with pytest.raises(DataError, match="data.train: the text has one distinct word, and word vectors need two"):
        counted(9, least=1)
