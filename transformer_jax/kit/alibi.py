"""Attention with linear biases (Press et al. 2022)."""

import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.modified_attention import SelfAttentionChange
from transformer_jax.layers.scaled_dot_product import At
from transformer_jax.registry.plugins import register


@register("positions", "alibi")
class LinearBiases(SelfAttentionChange):
    """q k / sqrt(K) - m |distance| in self-attention, m = 2^(-8 h / H) for head h = 1, ..., H.

    Section 3. Slopes of a number of heads that is no power of 2 follow the same formula. An encoder
    has the same bias on both sides.
    """

    def score_mod(self) -> Partial:
        return Partial(with_bias, 2.0 ** (-8.0 * jnp.arange(1, self.num_heads + 1) / self.num_heads))


def with_bias(slopes: Float[Array, " H"], scores: Float[Array, "B H Q M"], at: At) -> Float[Array, "B H Q M"]:
    return scores - slopes[None, :, None, None] * jnp.abs(at.distance)[:, None]
