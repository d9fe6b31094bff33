"""R-Drop: a penalty on the difference between two passes with different dropout masks, at twice the cost (Wu et al. 2021)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.loss_terms import ForcedPass, LossTerm


@dataclass(frozen=True)
class RDropSettings:
    weight: float = setting(
        5.0, "Alpha, the factor on the mean divergence of both directions.", at_least=0, program="traced"
    )


@register("loss_term", "r_drop", settings=RDropSettings)
class RDrop(LossTerm):
    """Loss of a second pass + weight / 2 (KL(p || q) + KL(q || p)) between the passes (Wu et al. 2021, equation 4).

    The loss of the second pass has label smoothing, but none of the other terms.
    """

    def of_pass(self, forced: ForcedPass) -> Array:
        other = forced.again()
        divergence = forced.sum_of_tokens(symmetric_divergence, forced.hidden, other)
        return forced.cross_entropy(other).loss + self.settings.weight * divergence


def symmetric_divergence(logits: Array, others: Array) -> Array:
    """(KL(p || q) + KL(q || p)) / 2 in nats, over the last axis."""
    log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(others)
    return 0.5 * jnp.sum((jnp.exp(log_p) - jnp.exp(log_q)) * (log_p - log_q), axis=-1)
