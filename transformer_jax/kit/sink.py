"""Sinks in the denominator of the softmax: a head can attend to nothing (Agarwal et al. 2025, gpt-oss, section 2.2)."""

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import Denominator
from transformer_jax.registry.plugins import register


@register("attention", "sink")
class Sink(AttentionChange):
    """exp(s_i) / (exp(b) + sum exp(s_j)), with a learned b of each head, ``sinks`` [H], initially 0."""

    def setup(self) -> None:
        self.sinks = self.param("sinks", nn.initializers.zeros, (self.num_heads,))

    def denominator_mod(self) -> Denominator:
        return Denominator(self.sinks)


@register("attention", "softmax_one")
class SoftmaxOne(AttentionChange):
    """exp(s_i) / (1 + sum exp(s_j)), weights that add up to less than 1 (Miller 2023, "Attention is off by one")."""

    def denominator_mod(self) -> Denominator:
        return Denominator(jnp.zeros(self.num_heads))
