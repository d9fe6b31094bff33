"""Soft-capped attention logits (Gemma 2, 2024, section 2)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.config.checks import setting
from transformer_jax.config.plugins import register
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import At


@dataclass(frozen=True)
class SoftCapSettings:
    cap: float = setting(50.0, "Scores stay between -cap and cap.", program="traced")


@register("attention", "soft_cap", settings=SoftCapSettings)
class SoftCap(AttentionChange):
    """cap tanh(score / cap)."""

    def score_mod(self) -> Partial:
        return Partial(capped, jnp.asarray(self.settings.cap, jnp.float32))


def capped(cap: Float[Array, ""], scores: Float[Array, "B H Q M"], at: At) -> Float[Array, "B H Q M"]:
    return cap * jnp.tanh(scores / cap)
