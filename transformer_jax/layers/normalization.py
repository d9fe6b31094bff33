"""Layer normalization (Ba, Kiros and Hinton 2016)."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Float

# The Transformer's paper does not give one; this is the value of its authors' code.
EPSILON = 1e-6


class LayerNorm(nn.Module):
    """g (x - mean) / sqrt(variance + epsilon) + b over the last axis (section 3.1, equation 4), in float32.

    Parameters: the gain ``scale`` [D], at first 1, and ``bias`` [D], at first 0.
    """

    epsilon: float = EPSILON

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Every row to mean ``bias`` and deviation ``scale``."""
        width = hidden.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (width,))
        bias = self.param("bias", nn.initializers.zeros, (width,))
        return normalize(hidden, scale, bias, self.epsilon)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def normalize(
    hidden: Float[Array, "*B D"], scale: Float[Array, "D"], bias: Float[Array, "D"], epsilon: float = EPSILON
) -> Float[Array, "*B D"]:
    """``hidden``, standardized along its last axis, times ``scale`` plus ``bias``.

    With the standardized rows y, their deviations s and c = scale g for the gradient g of the result, the derivative is
    (c - mean(c) - y mean(c y)) / s. Written out because automatic differentiation keeps, and on a CPU writes down, several
    arrays of that size.
    """
    return _forward(hidden, scale, bias, epsilon)[0]


def _forward(hidden: Array, scale: Array, bias: Array, epsilon: float) -> tuple[Array, tuple[Array, Array, Array]]:
    hidden = hidden.astype(jnp.float32)
    centered = hidden - jnp.mean(hidden, axis=-1, keepdims=True)
    inverse_deviation = lax.rsqrt(jnp.mean(jnp.square(centered), axis=-1, keepdims=True) + epsilon)
    standardized = centered * inverse_deviation
    normalized = standardized * jnp.broadcast_to(scale, hidden.shape) + jnp.broadcast_to(bias, hidden.shape)
    return normalized, (standardized, inverse_deviation, scale)


def _backward(epsilon: float, residuals: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    del epsilon
    standardized, inverse_deviation, scale = residuals
    shape = gradient.shape
    # As rows: on a CPU, with all its axes, the broadcast scale of the forward pass would be kept for this one.
    gradient, standardized = (array.reshape(-1, shape[-1]) for array in (gradient, standardized))
    cotangent = gradient * scale[None]
    mean = jnp.mean(cotangent, axis=-1, keepdims=True)
    projection = jnp.mean(cotangent * standardized, axis=-1, keepdims=True)
    to_hidden = (cotangent - mean - standardized * projection) * inverse_deviation.reshape(-1, 1)
    return to_hidden.reshape(shape), jnp.sum(gradient * standardized, axis=0), jnp.sum(gradient, axis=0)


normalize.defvjp(_forward, _backward)
