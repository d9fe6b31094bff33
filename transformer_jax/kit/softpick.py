"""Softpick: a rectified softmax, whose weights do not add up to 1 and are often 0 (Zuhri et al. 2025, Softpick)."""

import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import Denominator
from transformer_jax.registry.plugins import register

EPSILON = 1e-8


@register("attention", "softpick")
class Softpick(AttentionChange):
    """ReLU(exp(s_i) - 1) / (sum |exp(s_j) - 1| + epsilon) (section 3)."""

    def denominator_mod(self) -> Denominator:
        return Denominator(jnp.full(self.num_heads, jnp.log(EPSILON)), Partial(rectified))


def rectified(scores: Float[Array, "B H Q M"], shift: Float[Array, "B H Q 1"]) -> tuple[Array, Array]:
    difference = jnp.exp(scores - shift) - jnp.exp(-shift)
    return jnp.maximum(difference, 0.0), jnp.abs(difference)
