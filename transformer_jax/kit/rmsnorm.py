"""RMSNorm (Zhang and Sennrich 2019, equation 4)."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.site import Site
from transformer_jax.precision import Precision, rounding_barrier
from transformer_jax.registry.plugins import register


class RMSNorm(nn.Module):
    """g x / sqrt(mean(x^2) + epsilon) over the last axis, in float32; gain ``scale`` [D]."""

    epsilon: float
    precision: Precision

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        scale = self.param("scale", nn.initializers.ones, (hidden.shape[-1],))
        wide = rounding_barrier(hidden).astype(jnp.float32)
        inverse_rms = lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + self.epsilon)
        normalized = wide * inverse_rms * jnp.broadcast_to(scale, hidden.shape)
        return rounding_barrier(normalized.astype(self.precision.output))


@register("norm", "rmsnorm")
def rmsnorm(settings: None, config: Any, site: Site, *, precision: Precision) -> RMSNorm:
    """Division by the root mean square, without mean and bias (Zhang and Sennrich 2019)."""
    return RMSNorm(config.norm_epsilon, precision)
