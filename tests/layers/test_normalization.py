"""Layer normalization: its equation, and its written-out derivative."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.layers.normalization import EPSILON, normalize
from transformer_jax.precision import POLICIES

HIDDEN = 3 * jax.random.normal(jax.random.key(0), (2, 3, 8)) + 1
SCALE, BIAS = jnp.linspace(0.5, 2, 8), jnp.linspace(-1, 1, 8)


def plain(hidden, scale, bias):
    mean, variance = hidden.mean(-1, keepdims=True), hidden.var(-1, keepdims=True)
    return (hidden - mean) / (variance + EPSILON) ** 0.5 * scale[None, None] + bias[None, None]


def test_it_and_its_derivative_are_those_of_its_equation():
    expected = plain(*map(np.asarray, (HIDDEN, SCALE, BIAS)))
    np.testing.assert_allclose(normalize(HIDDEN, SCALE, BIAS), expected, rtol=1e-5, atol=1e-6)
    direction = jnp.cos(HIDDEN)

    def loss(function, *inputs):
        return (function(*inputs) * direction).sum()

    gradients = [jax.grad(partial(loss, function), argnums=(0, 1, 2)) for function in (normalize, plain)]
    actual, expected = jax.jit(lambda *inputs: [gradient(*inputs) for gradient in gradients])(HIDDEN, SCALE, BIAS)
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_row_of_equal_numbers_stays_finite():
    gradient = jax.grad(lambda hidden: normalize(hidden, SCALE, BIAS).sum())(jnp.ones((1, 8)))
    assert np.isfinite(gradient).all()


def test_moments_read_once_are_those_of_the_equation_to_rounding():
    """As policies with bfloat16 results, of rows whose mean is a hundred deviations."""
    hidden = (HIDDEN + 300).astype(jnp.bfloat16).astype(jnp.float32)
    actual = jax.jit(lambda hidden: normalize(hidden, SCALE, BIAS, EPSILON, POLICIES["bfloat16"]))(hidden)
    expected = plain(*map(np.asarray, (hidden, SCALE, BIAS)))
    assert actual.dtype == jnp.bfloat16
    np.testing.assert_allclose(actual.astype(jnp.float32), expected, rtol=2**-8, atol=2**-8)
