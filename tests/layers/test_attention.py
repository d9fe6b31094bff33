"""Scaled dot-product attention, multi-head attention and its variants against their equations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.attention_variants import AcausalAttention, RectifiedAttention, UnscaledAttention
from transformer_jax.layers.dropout import DropoutMask
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import scaled_dot_product_attention

SIZES = {"num_heads": 2, "key_size": 4, "value_size": 4, "d_model": 8}


def random(key: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(key).normal(size=shape), jnp.float32)


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def initialized(attention, *inputs, **options):
    """The parameters of an attention, and the attention as one program."""
    variables = random_params(partial(attention.init, train=False), jax.random.key(0), *inputs)
    program = jax.jit(partial(attention.apply, train=False, **options))
    return jax.tree.map(np.asarray, variables["params"]), partial(program, variables)


def test_weights_are_returned_before_dropout_and_a_row_that_may_attend_nowhere_is_finite():
    mask = jnp.array([[[True, True, True], [False, False, False]]])
    arguments = random(0, 1, 1, 2, 4), random(1, 1, 1, 3, 4), random(2, 1, 1, 3, 4), mask
    dropout = DropoutMask(0.9999999, jnp.zeros(2, jnp.uint32))
    attend = jax.jit(
        lambda *arguments: [scaled_dot_product_attention(*arguments, dropout=by) for by in (None, dropout)]
    )
    (attended, kept), (output, weights) = attend(*arguments)
    assert np.isfinite(attended).all()
    np.testing.assert_array_equal(weights, kept)
    assert not output.any()


def test_heads_are_concatenated_and_projected():
    attention = MultiHeadAttention(num_heads=2, key_size=3, value_size=5, d_model=8)
    queries, memory = random(0, 2, 4, 8), random(1, 2, 6, 8)
    mask = SentenceMask(jnp.ones((2, 4), int), jnp.ones((2, 6), int))
    kernels, attend = initialized(attention, queries, memory, mask)
    shapes = {name: kernel.shape for name, kernel in kernels.items()}
    assert shapes == {"query": (8, 2, 3), "key": (8, 2, 3), "value": (8, 2, 5), "output": (2, 5, 8)}
    heads = []
    for head in range(2):
        query = np.asarray(queries) @ kernels["query"][:, head]
        key, value = (np.asarray(memory) @ kernels[name][:, head] for name in ("key", "value"))
        heads.append(softmax(query @ key.swapaxes(1, 2) / 3**0.5) @ value)
    expected = np.concatenate(heads, axis=-1) @ kernels["output"].reshape(10, 8)
    np.testing.assert_allclose(attend(queries, memory, mask), expected, atol=1e-5)


def test_xavier_counts_heads_as_one_matrix():
    attention = MultiHeadAttention(num_heads=8, key_size=16, value_size=16, d_model=128)
    tokens, mask = jnp.zeros((1, 1, 128)), SentenceMask(*[jnp.ones((1, 1), int)] * 2)
    kernels = jax.jit(partial(attention.init, train=False))(jax.random.key(0), tokens, tokens, mask)["params"]
    for kernel in kernels.values():
        assert np.abs(kernel).max() == pytest.approx((6 / 256) ** 0.5, rel=1e-2)


def test_rectified_attention_is_what_it_says():
    inputs = random(0, 1, 3, 8)
    segments = jnp.array([[1, 1, 0]])
    mask = SentenceMask(segments, segments, is_causal=True)
    kernels, attend = initialized(RectifiedAttention(**SIZES), inputs, inputs, mask)
    assert set(kernels) == {"query", "key", "value"}
    query, key, value = (
        np.maximum(np.einsum("ld,dhk->hlk", inputs[0], kernels[name]), 0) for name in ("query", "key", "value")
    )
    scores = np.where(mask.array(), query @ key.swapaxes(1, 2) / 2, -np.inf)[:, :2]
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    result = attend(inputs, inputs, mask)[0]
    np.testing.assert_allclose(result[:2], np.concatenate(list(weights @ value), axis=-1), atol=1e-5)
    np.testing.assert_array_equal(result[2], np.zeros(8))


INPUTS = random(0, 1, 3, 8)
SEGMENTS = jnp.array([[1, 1, 1]])
CAUSAL = SentenceMask(SEGMENTS, SEGMENTS, is_causal=True)


def test_unscaled_weights_are_the_softmax_of_the_dot_products_in_every_backend():
    arguments = UnscaledAttention(**SIZES), INPUTS, INPUTS, CAUSAL
    kernels, attend = initialized(*arguments)
    fast = attend(*arguments[1:])
    full, sown = initialized(*arguments, mutable=["intermediates"])[1](*arguments[1:])
    query, key = (np.einsum("ld,dhk->hlk", INPUTS[0], kernels[name]) for name in ("query", "key"))
    scores = np.where(CAUSAL.array(), query @ key.swapaxes(1, 2), -np.inf)
    weights = sown["intermediates"]["attention_weights"][0][0]
    np.testing.assert_allclose(weights, softmax(scores), atol=1e-6)
    np.testing.assert_allclose(fast, full, atol=1e-6)


@pytest.mark.parametrize(("kind", "sees_future"), [(MultiHeadAttention, False), (AcausalAttention, True)])
def test_acausal_attention_sees_what_follows_and_never_padding(kind, sees_future):
    _, attend = initialized(kind(**SIZES), INPUTS, INPUTS, CAUSAL)
    padded = SentenceMask(SEGMENTS, jnp.array([[1, 1, 0]]), is_causal=True)

    def first_output(memory, mask):
        return attend(INPUTS, memory, mask)[0, 0]

    last_changed = INPUTS.at[0, 2].add(1.0)
    assert np.allclose(first_output(INPUTS, CAUSAL), first_output(last_changed, CAUSAL)) is not sees_future
    np.testing.assert_allclose(first_output(INPUTS, padded), first_output(last_changed, padded), atol=1e-6)
