"""Sigmoid attention: keys do not compete (Ramapuram et al. 2024, equation 3)."""

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.config.plugins import register
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import MASKED_SCORE


@register("attention", "sigmoid")
class SigmoidAttention(AttentionChange):
    """sigmoid(s_i - ln n), with the n keys that a query sees (Ramapuram et al. 2024, equation 3)."""

    def weights_mod(self) -> Partial:
        return Partial(sigmoids)


def sigmoids(weights: Float[Array, "B H Q M"], scores: Float[Array, "B H Q M"]) -> Float[Array, "B H Q M"]:
    keys = jnp.sum(scores > MASKED_SCORE, axis=-1, keepdims=True)
    return jax.nn.sigmoid(scores - jnp.log(jnp.maximum(keys, 1).astype(jnp.float32)))
