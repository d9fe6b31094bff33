"""Soft-capped logits, of attention and of the output (Gemma 2, 2024, section 2)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float, Hidden
from transformer_jax.config.checks import setting
from transformer_jax.layers.embedding import LogitFactors, Projection
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import At
from transformer_jax.registry.plugins import register


@dataclass(frozen=True)
class SoftCapSettings:
    cap: float = setting(50.0, "Scores without biases of positions stay between -cap and cap.", program="traced")


@register("attention", "soft_cap", settings=SoftCapSettings)
class SoftCap(AttentionChange):
    """cap tanh(score / cap)."""

    def score_mod(self) -> Partial:
        return Partial(capped, jnp.asarray(self.settings.cap, jnp.float32))


@dataclass(frozen=True)
class SoftCappedSettings:
    cap: float = setting(30.0, "Logits stay between -cap and cap.", program="traced")


@register("projection", "soft_capped", settings=SoftCappedSettings)
class SoftCapped(Projection):
    """cap tanh(logit / cap) of the logits of the output."""

    keeps_hidden = True

    def factors(self, hidden: Hidden) -> LogitFactors:
        cap = jnp.asarray(self.settings.cap, jnp.float32)
        return self.embedding.factors(hidden)._replace(logit_mod=Partial(capped, cap))


def capped(cap: Float[Array, ""], scores: Array, at: At | None = None) -> Array:
    """Return capped scores or logits."""
    return cap * jnp.tanh(scores / cap)
