"""Feed-forward networks, residual connections and embeddings against their formulas."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitted_model import random_params

from transformer_jax.kit.gated_linear_units import GatedFeedForward
from transformer_jax.layers.embedding import BiasedProjection, Embedding, ZeroPaddingEmbedding
from transformer_jax.layers.feed_forward import FeedForward
from transformer_jax.layers.residual import PostNormResidual, PreNormResidual
from transformer_jax.precision import POLICIES

INPUTS = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)


def initialized(module, *inputs, method=None, **options):
    """The parameters of a module, and the module as one program."""
    init = partial(module.init, **({"method": method} if method else {}), **options)
    variables = random_params(init, jax.random.key(0), *inputs)
    return jax.tree.map(np.asarray, variables["params"]), jax.jit(partial(module.apply, method=method, **options))


def normalized(inputs: np.ndarray) -> np.ndarray:
    centered = inputs - inputs.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-6)


def test_feed_forward_is_equation_2():
    params, network = initialized(FeedForward(d_ff=16), INPUTS, train=False)
    wide = np.maximum(0, INPUTS @ params["wide_kernel"] + params["wide_bias"])
    expected = wide @ params["narrow_kernel"] + params["narrow_bias"]
    np.testing.assert_allclose(network({"params": params}, INPUTS), expected, atol=1e-5)


def test_gated_feed_forward_has_no_biases():
    params, network = initialized(GatedFeedForward(d_ff=16, activation=jax.nn.silu), INPUTS, train=False)
    assert set(params) == {"gate_kernel", "wide_kernel", "narrow_kernel"}
    gate = INPUTS @ params["gate_kernel"]
    expected = (gate / (1 + np.exp(-gate)) * (INPUTS @ params["wide_kernel"])) @ params["narrow_kernel"]
    np.testing.assert_allclose(network({"params": params}, INPUTS), expected, atol=1e-5)


def around_sine(residual, *, train):
    inputs = jnp.asarray(INPUTS)

    def apply(residual):
        return residual.after(inputs, jnp.sin(residual.before(inputs)), train=train)

    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    return jax.jit(nn.init_with_output(apply, residual))(keys)[0]


@pytest.mark.parametrize(
    ("residual", "expected"),
    [
        (PostNormResidual(None), normalized(INPUTS + np.sin(INPUTS))),
        (PreNormResidual(None), INPUTS + np.sin(normalized(INPUTS))),
    ],
)
def test_where_the_norm_is(residual, expected):
    np.testing.assert_allclose(around_sine(residual, train=False), expected, atol=1e-5)


def test_dropout_falls_on_the_sublayer_and_not_on_the_residual():
    np.testing.assert_array_equal(around_sine(PreNormResidual(0.999999), train=True), INPUTS)


def test_embeddings_are_scaled_and_logits_are_not():
    embedding, ids, hidden = (
        Embedding(vocabulary_size=5, d_model=16),
        np.array([[3, 1]]),
        np.ones((1, 2, 16), np.float32),
    )
    params, embed = initialized(embedding, ids, method="embed")
    np.testing.assert_allclose(embed({"params": params}, ids), params["table"][ids] * 4.0, rtol=1e-6)
    logits = jax.jit(partial(embedding.apply, method="logits"))({"params": params}, hidden)
    np.testing.assert_allclose(logits, hidden @ params["table"].T, atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "tf32", "bfloat16"])
def test_the_bias_of_logits_survives_operands_in_bfloat16(policy):
    """As on a TPU, where float32 products are one bfloat16 pass."""
    bias = np.random.default_rng(0).normal(size=50).astype(np.float32)
    projection = BiasedProjection(Embedding(50, 4, POLICIES[policy]))
    variables = {"params": {"logits_bias": bias, "embedding": {"table": jnp.ones((50, 4))}}}

    @jax.jit
    def logits_of(variables):
        factors = projection.apply(variables, jnp.zeros((1, 1, 4)), method="factors")
        return factors.logits(POLICIES["bfloat16"].float32_output)

    logits = logits_of(variables)
    np.testing.assert_allclose(logits[0, 0], bias, rtol=1e-5)


def test_padding_is_zero_and_stays_zero():
    ids = np.array([[3, 0]])
    params, embed = initialized(ZeroPaddingEmbedding(5, 4), ids, method="embed")

    def norm(params):
        embedded = embed({"params": params}, ids)
        return jnp.sum(embedded**2), embedded

    gradient, embedded = jax.jit(jax.grad(norm, has_aux=True))(params)
    assert not embedded[0, 1].any()
    gradient = gradient["table"]
    assert np.abs(gradient[3]).min() > 0
    assert np.abs(gradient[0]).max() == 0
