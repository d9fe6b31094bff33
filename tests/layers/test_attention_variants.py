"""Attention with a part taken out: exactly that part is missing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.attention_variants import AcausalAttention, UnscaledAttention
from transformer_jax.layers.masks import SentenceMask

SIZES = {"num_heads": 2, "key_size": 4, "value_size": 4, "d_model": 8}
INPUTS = jax.random.normal(jax.random.key(0), (1, 3, 8))
SEGMENTS = jnp.array([[1, 1, 1]])
CAUSAL = SentenceMask(SEGMENTS, SEGMENTS, is_causal=True)


def test_unscaled_weights_are_the_softmax_of_the_dot_products_in_every_backend():
    attention = UnscaledAttention(**SIZES)
    variables = attention.init(jax.random.key(1), INPUTS, INPUTS, CAUSAL, train=False)
    fast = attention.apply(variables, INPUTS, INPUTS, CAUSAL, train=False)
    full, sown = attention.apply(variables, INPUTS, INPUTS, CAUSAL, train=False, mutable=["intermediates"])
    query, key = (np.einsum("ld,dhk->hlk", INPUTS[0], variables["params"][name]) for name in ("query", "key"))
    scores = np.where(CAUSAL.array(), query @ key.swapaxes(1, 2), -np.inf)
    weights = sown["intermediates"]["attention_weights"][0][0]
    np.testing.assert_allclose(weights, jax.nn.softmax(scores), atol=1e-6)
    np.testing.assert_allclose(fast, full, atol=1e-6)


@pytest.mark.parametrize(("kind", "sees_future"), [(MultiHeadAttention, False), (AcausalAttention, True)])
def test_acausal_attention_sees_what_follows_and_never_padding(kind, sees_future):
    attention = kind(**SIZES)
    variables = attention.init(jax.random.key(1), INPUTS, INPUTS, CAUSAL, train=False)
    padded = SentenceMask(SEGMENTS, jnp.array([[1, 1, 0]]), is_causal=True)

    def first_output(memory, mask):
        return attention.apply(variables, INPUTS, memory, mask, train=False)[0, 0]

    last_changed = INPUTS.at[0, 2].add(1.0)
    assert np.allclose(first_output(INPUTS, CAUSAL), first_output(last_changed, CAUSAL)) is not sees_future
    np.testing.assert_allclose(first_output(INPUTS, padded), first_output(last_changed, padded), atol=1e-6)
