"""Feed-forward networks, residual connections and embeddings against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.layers.embedding import Embedding
from transformer_jax.layers.feed_forward import FeedForward, GatedFeedForward
from transformer_jax.layers.residual import PostNormResidual, PreNormResidual

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


@pytest.mark.parametrize(
    ("residual", "expected"),
    [
        (PostNormResidual(None), normalized(INPUTS + jnp.sin(INPUTS))),
        (PreNormResidual(None), INPUTS + jnp.sin(normalized(INPUTS))),
    ],
)
def test_where_the_norm_is(residual, expected):
    variables = residual.init(jax.random.key(0), INPUTS, jnp.sin, train=False)
    np.testing.assert_allclose(residual.apply(variables, INPUTS, jnp.sin, train=False), expected, atol=1e-5)


def test_dropout_falls_on_the_sublayer_and_not_on_the_residual():
    residual = PreNormResidual(0.999999)
    variables = residual.init(jax.random.key(0), INPUTS, jnp.sin, train=False)
    found = residual.apply(variables, INPUTS, jnp.sin, train=True, rngs={"dropout": jax.random.key(0)})
    np.testing.assert_array_equal(found, INPUTS)


def test_embeddings_are_scaled_and_logits_are_not():
    embedding = Embedding(vocabulary_size=5, d_model=16)
    ids = jnp.array([[3, 1]])
    variables = embedding.init(jax.random.key(0), ids, method="embed")
    table = variables["params"]["table"]
    np.testing.assert_allclose(embedding.apply(variables, ids, method="embed"), table[ids] * 4.0, rtol=1e-6)
    hidden = jax.random.normal(jax.random.key(1), (1, 2, 16))
    np.testing.assert_allclose(embedding.apply(variables, hidden, method="logits"), hidden @ table.T, atol=1e-5)
