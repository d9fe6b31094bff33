"""Masking a head takes away what it contributes, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.tools.pictures.heads import HeadImportance, Scores, head_counts, head_importance, without_head

INPUTS = jax.random.normal(jax.random.key(0), (1, 4, 8))
SEGMENTS = jnp.ones((1, 4), int)
MASK = SentenceMask(SEGMENTS, SEGMENTS)
ATTENTION = MultiHeadAttention(num_heads=2, key_size=4, value_size=4, d_model=8)
NAME = "encoder_layers_0/self_attention"


def params_of(variables):
    return {"encoder_layers_0": {"self_attention": variables["params"], "norm": {"output": jnp.ones(3)}}}


def output(params):
    kernels = params["encoder_layers_0"]["self_attention"]
    return ATTENTION.apply({"params": kernels}, INPUTS, INPUTS, MASK, train=False)


def test_the_output_is_the_sum_of_what_the_heads_contribute():
    params = params_of(ATTENTION.init(jax.random.key(1), INPUTS, INPUTS, MASK, train=False))
    assert head_counts(params) == {NAME: 2}
    first, second = (output(without_head(params, NAME, head)) for head in (1, 0))
    np.testing.assert_allclose(first + second, output(params), atol=1e-6)
    assert np.abs(first).max() > 0.1
    assert not output(without_head(without_head(params, NAME, 0), NAME, 1)).any()


def test_every_head_is_masked_once_and_its_change_is_told_by_layer_and_head():
    params = {f"decoder_layers_{n}": {"cross_attention": {"output": jnp.ones((2, 1, 1))}} for n in (10, 9)}

    def evaluate(params):
        tenth, ninth = (params[f"decoder_layers_{n}"]["cross_attention"]["output"].ravel() for n in (10, 9))
        return Scores(float(tenth @ jnp.array([1.0, 2.0]) + ninth @ jnp.array([3.0, 4.0])), 0.0)

    found = head_importance(params, evaluate)
    assert isinstance(found, HeadImportance)
    assert found.whole.bleu == 10
    np.testing.assert_array_equal(found.changes("decoder cross", "bleu"), [[-3, -4], [-1, -2]])
