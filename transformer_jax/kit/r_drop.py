"""R-Drop: a penalty on the divergence of two passes with other dropout masks (Wu et al. 2021)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.loss_terms import LossTerm


@dataclass(frozen=True)
class RDropSettings:
    weight: float = setting(5.0, "Alpha, the factor on the mean divergence.", at_least=0, program="traced")


@register("loss_term", "r_drop", settings=RDropSettings)
class RDrop(LossTerm):
    """Loss of a second pass + weight / 2 (KL(p || q) + KL(q || p)) between the passes (equation 4).

    At twice the cost. The loss of the second pass has label smoothing, but none of the other terms.
    """

    further_passes = 1

    def of_logits(self, labels: Array, weights: Array) -> Partial:
        return Partial(second_loss_and_divergence, jnp.asarray(self.settings.weight, jnp.float32))


def second_loss_and_divergence(weight: Array, logits: Array, labels: Array, second: tuple[Array, Array]) -> Array:
    others, losses = second
    return losses + weight * symmetric_divergence(logits, others)


def symmetric_divergence(logits: Array, others: Array) -> Array:
    """Return (KL(p || q) + KL(q || p)) / 2 in nats, over the last axis."""
    log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(others)
    return 0.5 * jnp.sum((jnp.exp(log_p) - jnp.exp(log_q)) * (log_p - log_q), axis=-1)
