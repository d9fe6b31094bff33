"""Other denominators of the softmax: a head can attend to nothing (Agarwal et al. 2025)."""

import flax.linen as nn
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import Denominator
from transformer_jax.registry.plugins import register

EPSILON = 1e-8


@register("attention", "sink")
class Sink(AttentionChange):
    """exp(s_i) / (exp(b) + sum exp(s_j)), learned b of heads, ``sinks`` [H], initially 0."""

    def setup(self) -> None:
        self.sinks = self.param("sinks", nn.initializers.zeros, (self.num_heads,))

    def denominator_mod(self) -> Denominator:
        return Denominator(self.sinks)


@register("attention", "softmax_one")
class SoftmaxOne(AttentionChange):
    """exp(s_i) / (1 + sum exp(s_j)), sum below 1 (Miller 2023, "Attention is off by one")."""

    def denominator_mod(self) -> Denominator:
        return Denominator(jnp.zeros(self.num_heads))


@register("attention", "softpick")
class Softpick(AttentionChange):
    """ReLU(exp(s_i) - 1) / (sum |exp(s_j) - 1| + epsilon) (Zuhri et al. 2025, Softpick)."""

    def denominator_mod(self) -> Denominator:
        return Denominator(jnp.full(self.num_heads, jnp.log(EPSILON)), Partial(rectified))


def rectified(scores: Float[Array, "B H Q M"], shift: Float[Array, "B H Q 1"]) -> tuple[Array, Array]:
    difference = jnp.exp(scores - shift) - jnp.exp(-shift)
    return jnp.maximum(difference, 0.0), jnp.abs(difference)
