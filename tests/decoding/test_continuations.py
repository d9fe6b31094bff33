import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.decoding.continuations import best_continuations, normalizers_of

BANNED = (0, 1)


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
    totals = np.asarray(prefixes[:, :, None] + jax.nn.log_softmax(logits)).copy()
    totals[:, :, list(BANNED)] = -np.inf
    expected = np.argsort(-totals.reshape(5, -1), axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(found.parents, expected // vocabulary_size)
    np.testing.assert_array_equal(found.tokens, expected % vocabulary_size)
    np.testing.assert_allclose(found.log_probs, np.take_along_axis(totals.reshape(5, -1), expected, 1), rtol=1e-5)


def test_of_equal_continuations_the_first_is_found_first():
    logits = np.zeros((1, 2, 640), np.float32)
    logits[0, 0, [600, 70]] = logits[0, 1, [3, 300]] = 4
    found = best_continuations(jnp.zeros((1, 2)), jnp.asarray(logits), normalizers_of(jnp.asarray(logits)), 4, BANNED)
    assert found.parents[0].tolist() == [0, 0, 1, 1] and found.tokens[0].tolist() == [70, 600, 3, 300]
