"""Layer normalization: its equation, and its written-out derivative."""

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.layers.normalization import EPSILON, normalize

HIDDEN = 3 * jax.random.normal(jax.random.key(0), (2, 3, 8)) + 1
SCALE, BIAS = jnp.linspace(0.5, 2, 8), jnp.linspace(-1, 1, 8)


def plain(hidden, scale, bias):
    mean, variance = hidden.mean(-1, keepdims=True), hidden.var(-1, keepdims=True)
    return (hidden - mean) / jnp.sqrt(variance + EPSILON) * scale[None, None] + bias[None, None]


def test_it_and_its_derivative_are_those_of_its_equation():
    np.testing.assert_allclose(normalize(HIDDEN, SCALE, BIAS), plain(HIDDEN, SCALE, BIAS), rtol=1e-5, atol=1e-6)
    direction = jax.random.normal(jax.random.key(1), HIDDEN.shape)
    found, expected = (
        jax.grad(lambda *inputs, function=function: (function(*inputs) * direction).sum(), argnums=(0, 1, 2))(
            HIDDEN, SCALE, BIAS
        )
        for function in (normalize, plain)
    )
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_row_of_equal_numbers_stays_finite():
    gradient = jax.grad(lambda hidden: normalize(hidden, SCALE, BIAS).sum())(jnp.ones((1, 8)))
    assert np.isfinite(gradient).all()
