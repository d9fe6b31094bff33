"""Feed-forward networks, residual connections and embeddings against their formulas."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.layers.embedding import BiasedProjection, Embedding, ZeroPaddingEmbedding
from transformer_jax.layers.feed_forward import FeedForward, GatedFeedForward
from transformer_jax.layers.residual import PostNormResidual, PreNormResidual
from transformer_jax.precision import POLICIES

INPUTS = jax.random.normal(jax.random.key(0), (2, 3, 8))


def normalized(inputs: jax.Array) -> jax.Array:
    centered = inputs - inputs.mean(-1, keepdims=True)
    return centered / jnp.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6)


def test_feed_forward_is_equation_2():
    network = FeedForward(d_ff=16)
    variables = network.init(jax.random.key(1), INPUTS, train=False)
    params = jax.tree.map(lambda leaf: leaf + 0.1, variables["params"])
    wide = jnp.maximum(0, INPUTS @ params["wide_kernel"] + params["wide_bias"][None, None])
    expected = wide @ params["narrow_kernel"] + params["narrow_bias"][None, None]
    np.testing.assert_allclose(network.apply({"params": params}, INPUTS, train=False), expected, atol=1e-5)


def test_gated_feed_forward_has_no_biases():
    network = GatedFeedForward(d_ff=16, activation=jax.nn.silu)
    params = network.init(jax.random.key(1), INPUTS, train=False)["params"]
    assert set(params) == {"gate_kernel", "wide_kernel", "narrow_kernel"}
    expected = (jax.nn.silu(INPUTS @ params["gate_kernel"]) * (INPUTS @ params["wide_kernel"])) @ params[
        "narrow_kernel"
    ]
    np.testing.assert_allclose(network.apply({"params": params}, INPUTS, train=False), expected, atol=1e-5)


def around_sine(residual, *, train):
    def apply(residual):
        return residual.after(INPUTS, jnp.sin(residual.before(INPUTS)), train=train)

    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    return nn.init_with_output(apply, residual)(keys)[0]


@pytest.mark.parametrize(
    ("residual", "expected"),
    [
        (PostNormResidual(None), normalized(INPUTS + jnp.sin(INPUTS))),
        (PreNormResidual(None), INPUTS + jnp.sin(normalized(INPUTS))),
    ],
)
def test_where_the_norm_is(residual, expected):
    np.testing.assert_allclose(around_sine(residual, train=False), expected, atol=1e-5)


def test_dropout_falls_on_the_sublayer_and_not_on_the_residual():
    np.testing.assert_array_equal(around_sine(PreNormResidual(0.999999), train=True), INPUTS)


def test_embeddings_are_scaled_and_logits_are_not():
    embedding = Embedding(vocabulary_size=5, d_model=16)
    ids = jnp.array([[3, 1]])
    variables = embedding.init(jax.random.key(0), ids, method="embed")
    table = variables["params"]["table"]
    np.testing.assert_allclose(embedding.apply(variables, ids, method="embed"), table[ids] * 4.0, rtol=1e-6)
    hidden = jax.random.normal(jax.random.key(1), (1, 2, 16))
    np.testing.assert_allclose(embedding.apply(variables, hidden, method="logits"), hidden @ table.T, atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "tf32", "bfloat16"])
def test_the_bias_of_logits_survives_operands_in_bfloat16(policy):
    """As on a TPU, where float32 products are one bfloat16 pass."""
    bias = jax.random.normal(jax.random.key(0), (50,))
    projection = BiasedProjection(Embedding(50, 4, POLICIES[policy]))
    variables = {"params": {"logits_bias": bias, "embedding": {"table": jnp.ones((50, 4))}}}
    factors = projection.apply(variables, jnp.zeros((1, 1, 4)), method="factors")
    logits = factors.logits(POLICIES["bfloat16"].float32_output)
    np.testing.assert_allclose(logits[0, 0], bias, rtol=1e-5)


def test_padding_is_zero_and_stays_zero():
    embedding = ZeroPaddingEmbedding(5, 4)
    ids = jnp.array([[3, 0]])
    variables = embedding.init(jax.random.key(0), ids, method="embed")
    assert np.abs(embedding.apply(variables, ids, method="embed")[0]).sum(-1).tolist()[1] == 0

    def norm(variables):
        return jnp.sum(embedding.apply(variables, ids, method="embed") ** 2)

    gradient = jax.grad(norm)(variables)["params"]["table"]
    assert np.abs(gradient[3]).min() > 0
    assert np.abs(gradient[0]).max() == 0
