"""Layer normalization (Ba, Kiros and Hinton 2016)."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.parameter_initialization import Layer
from transformer_jax.precision import FLOAT32, Precision, rounding_barrier
from transformer_jax.registry.plugins import register

# Neither paper gives a value; this one is from tensor2tensor, the code of Vaswani et al. 2017.
EPSILON = 1e-6


class LayerNorm(Layer):
    """g (x - mean) / sqrt(variance + epsilon) + b over the last axis (equation 4), in float32.

    Parameters: the gain ``scale`` [D], initially 1, and ``bias`` [D], initially 0. The result has
    type ``precision.output``.
    """

    epsilon: float = EPSILON
    precision: Precision = FLOAT32

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        width = hidden.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (width,))
        bias = self.param("bias", nn.initializers.zeros, (width,))
        return rounding_barrier(normalize(hidden, scale, bias, self.epsilon, self.precision))


register("norm", "layer_norm")(lambda settings, config, site, *, precision: LayerNorm(config.norm_epsilon, precision))


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def normalize(
    hidden: Float[Array, "*B D"],
    scale: Float[Array, "D"],
    bias: Float[Array, "D"],
    epsilon: float = EPSILON,
    precision: Precision = FLOAT32,
) -> Float[Array, "*B D"]:
    """Standardize ``hidden`` along its last axis, times ``scale`` plus ``bias``.

    The result is rounded to ``precision.output``. For standardized rows y, their deviations s, the
    cotangent g and c = scale g, the gradient is (c - mean(c) - y mean(c y)) / s. Automatic
    differentiation would store several arrays of that size.
    """
    return _forward(hidden, scale, bias, epsilon, precision)[0]


def _forward(
    hidden: Array, scale: Array, bias: Array, epsilon: float, precision: Precision
) -> tuple[Array, tuple[Array, ...]]:
    moments = _moments if precision.output == "float32" else _moments_in_one_pass
    mean, variance = moments(hidden)
    inverse_deviation = lax.rsqrt(variance + epsilon)
    hidden = rounding_barrier(hidden)
    standardized = (hidden.astype(jnp.float32) - mean) * inverse_deviation
    normalized = standardized * jnp.broadcast_to(scale, hidden.shape) + jnp.broadcast_to(bias, hidden.shape)
    return normalized.astype(precision.output), (hidden, mean, inverse_deviation, scale)


def _moments(hidden: Array) -> tuple[Array, Array]:
    wide = hidden.astype(jnp.float32)
    mean = jnp.mean(wide, axis=-1, keepdims=True)
    return mean, jnp.mean(jnp.square(wide - mean), axis=-1, keepdims=True)


def _moments_in_one_pass(hidden: Array) -> tuple[Array, Array]:
    """Return ``_moments`` for rounded results, in the kernel that writes ``hidden``.

    The relative error of the variance is about 1e-7 (mean / deviation)^2. The result is off by 1 %
    if the mean of a row is 300 deviations, and useless from 3,000 on.
    """
    wide = hidden.astype(jnp.float32)
    mean, square = (jnp.mean(moment, axis=-1, keepdims=True) for moment in (wide, jnp.square(wide)))
    return mean, jnp.maximum(square - jnp.square(mean), 0.0)


def _backward(
    epsilon: float, precision: Precision, residuals: tuple[Array, ...], gradient: Array
) -> tuple[Array, Array, Array]:
    hidden, scale = residuals[0], residuals[3]
    # Merged into rows: on a CPU the broadcast scale of the forward pass would otherwise be stored.
    rows = (-1,) if precision.merges_positions else hidden.shape[:-1]
    wide, gradient = (array.reshape(*rows, hidden.shape[-1]).astype(jnp.float32) for array in (hidden, gradient))
    mean, inverse_deviation = (array.reshape(*rows, 1) for array in residuals[1:3])
    standardized = (wide - mean) * inverse_deviation
    cotangent = gradient * jnp.broadcast_to(scale, wide.shape)
    projection = jnp.mean(cotangent * standardized, axis=-1, keepdims=True)
    centered = cotangent - jnp.mean(cotangent, axis=-1, keepdims=True)
    to_hidden = (centered - standardized * projection) * inverse_deviation
    summed = tuple(range(wide.ndim - 1))
    to_scale, to_bias = jnp.sum(gradient * standardized, axis=summed), jnp.sum(gradient, axis=summed)
    return rounding_barrier(to_hidden.reshape(hidden.shape).astype(hidden.dtype)), to_scale, to_bias


normalize.defvjp(_forward, _backward)
