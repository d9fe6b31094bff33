from functools import partial

import jax
import numpy as np
import pytest

from transformer_jax.decoding.continuations import best_continuations, normalizers_of

BANNED = (0, 1)


@partial(jax.jit, static_argnums=2)
def best(prefixes, logits, count):
    return best_continuations(prefixes, logits, normalizers_of(logits), count, BANNED)


# 66 has a group size that divides it, 199 has none and is padded, 9 is smaller than a group.
@pytest.mark.parametrize("vocabulary_size", [9, 66, 199, 640])
def test_equals_the_search_of_all_log_probabilities(vocabulary_size):
    random = np.random.default_rng(vocabulary_size)
    logits = random.normal(size=(5, 3, vocabulary_size)).astype(np.float32)
    logits[:, :, list(BANNED)] += 5
    prefixes = -random.uniform(size=(5, 3)).astype(np.float32)
    prefixes[4, 1:] = -np.inf
    found = best(prefixes, logits, 6)
    totals = prefixes[:, :, None] + logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    totals[:, :, list(BANNED)] = -np.inf
    expected = np.argsort(-totals.reshape(5, -1), axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(found.parents, expected // vocabulary_size)
    np.testing.assert_array_equal(found.tokens, expected % vocabulary_size)
    np.testing.assert_allclose(found.log_probs, np.take_along_axis(totals.reshape(5, -1), expected, 1), rtol=1e-5)


def test_of_equal_continuations_the_first_is_found_first():
    logits = np.zeros((1, 2, 640), np.float32)
    logits[0, 0, [600, 70]] = logits[0, 1, [3, 300]] = 4
    found = best(np.zeros((1, 2), np.float32), logits, 4)
    assert found.parents[0].tolist() == [0, 0, 1, 1] and found.tokens[0].tolist() == [70, 600, 3, 300]
