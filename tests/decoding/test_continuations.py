import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.decoding.continuations import (
    GROUP_SIZE,
    best_continuations,
    continuations_by,
    normalizers_of,
    top_k,
)

BANNED = (0, 1)


def in_full(prefixes, logits):
    totals = np.asarray(prefixes[:, :, None] + jax.nn.log_softmax(logits)).copy()
    totals[:, :, list(BANNED)] = -np.inf
    return totals


# 66 has a group size that divides it, 199 has none and is padded, 9 is smaller than a group.
@pytest.mark.parametrize("vocabulary_size", [9, 66, 199, 640])
def test_equals_the_search_of_all_log_probabilities(vocabulary_size):
    random = np.random.default_rng(vocabulary_size)
    logits = random.normal(size=(5, 3, vocabulary_size)).astype(np.float32)
    logits[:, :, list(BANNED)] += 5
    prefixes = -random.uniform(size=(5, 3)).astype(np.float32)
    prefixes[4, 1:] = -np.inf
    found = best_continuations(
        jnp.asarray(prefixes), jnp.asarray(logits), normalizers_of(jnp.asarray(logits)), 6, BANNED
    )
    totals = in_full(prefixes, logits)
    expected = np.argsort(-totals.reshape(5, -1), axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(found.parents, expected // vocabulary_size)
    np.testing.assert_array_equal(found.tokens, expected % vocabulary_size)
    np.testing.assert_allclose(found.log_probs, np.take_along_axis(totals.reshape(5, -1), expected, 1), rtol=1e-5)


def test_of_equal_continuations_the_first_is_found_first():
    logits = np.zeros((1, 2, 640), np.float32)
    logits[0, 0, [600, 70]] = logits[0, 1, [3, 300]] = 4
    found = best_continuations(jnp.zeros((1, 2)), jnp.asarray(logits), normalizers_of(jnp.asarray(logits)), 4, BANNED)
    assert list(zip(found.parents[0].tolist(), found.tokens[0].tolist(), strict=True)) == [
        (0, 70),
        (0, 600),
        (1, 3),
        (1, 300),
    ]


def test_one_token_alone_continues_the_best_prefix_first():
    logits = jnp.zeros((1, 3, 4))
    found = continuations_by(
        jnp.array([2]), jnp.array([[-2.0, -1.0, -jnp.inf]]), logits, normalizers_of(jnp.asarray(logits)), 5
    )
    assert found.parents[0, :2].tolist() == [1, 0] and (found.tokens == 2).all()
    np.testing.assert_allclose(found.log_probs[0], np.array([-1, -2, -np.inf, -np.inf, -np.inf]) - np.log(4), rtol=1e-6)


@pytest.mark.parametrize("columns", [40, 2 * 3 * GROUP_SIZE + 1, 50 * GROUP_SIZE, 50 * GROUP_SIZE + 7])
def test_top_k_equals_the_full_search(columns):
    random = np.random.default_rng(columns)
    distinct = random.normal(size=(4, columns))
    with_ties = random.integers(0, 20, size=(4, columns))
    mostly_impossible = np.where(np.arange(columns) % 31 == 30, distinct, -np.inf)
    later_is_larger = np.where(np.arange(columns) == columns - 1, 2, np.arange(columns) % GROUP_SIZE == 9)[None]
    values = jnp.asarray(np.concatenate([distinct, with_ties, mostly_impossible, later_is_larger]), jnp.float32)
    best, index = top_k(values, 3)
    expected_best, expected_index = jax.lax.top_k(values, 3)
    np.testing.assert_array_equal(best, expected_best)
    np.testing.assert_array_equal(index, expected_index)


def test_columns_stay_inside_when_all_is_impossible():
    values = jnp.full((2, 7 * GROUP_SIZE + 1), -jnp.inf)
    best, index = top_k(values, 3)
    assert (best == -jnp.inf).all()
    assert (index < values.shape[1]).all()
