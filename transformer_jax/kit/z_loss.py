"""The z-loss keeps logits near 0, where bfloat16 rounds less (Chowdhery et al. 2022, PaLM)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.loss_terms import LossTerm


@dataclass(frozen=True)
class ZLossSettings:
    weight: float = setting(1e-4, "Factor on the squared log normalizer.", at_least=0, program="traced")


@register("loss_term", "z_loss", settings=ZLossSettings)
class ZLoss(LossTerm):
    """weight log(Z)^2, where Z is the sum of the exponentials of the logits of a token."""

    def of_logits(self, labels: Array, weights: Array) -> Partial:
        return Partial(squared_log_normalizer, self.settings.weight)


def squared_log_normalizer(weight: Array, logits: Array, labels: Array) -> Array:
    return weight * jnp.square(jax.nn.logsumexp(logits, axis=-1))
