"""Entropy and largest score of every attention, which tell of collapse and of growing logits (Zhai et al. 2023)."""

import jax.numpy as jnp

from transformer_jax.config.checks import require
from transformer_jax.config.plugins import register
from transformer_jax.models.inspection import Activations
from transformer_jax.training.statistics import Ratios, Statistic, ratio


@register("statistic", "attention_entropy")
class AttentionEntropy(Statistic):
    """Mean entropy of the weights of an attention in units of ln n, n the visible keys of a query (Zhai et al. 2023).

    0: one key, 1: uniform. Weights are scaled to sum to 1, negative ones count as 0. Queries that see fewer than two keys, or
    attend to none, do not count.
    """

    reads_activations = True

    def of_pass(self, activations: Activations) -> Ratios:
        require(bool(activations.attention), "training.watch", "attention_entropy needs a Transformer with attention")
        found = {}
        for path, (_, weights, visible) in activations.attention.items():
            keys = jnp.broadcast_to(jnp.sum(visible, axis=-1)[:, None], weights.shape[:3])
            weights = jnp.maximum(weights, 0.0)
            total = jnp.sum(weights, axis=-1, keepdims=True)
            weights /= jnp.where(total > 0, total, 1.0)
            entropy = -jnp.sum(weights * jnp.log(jnp.where(weights > 0, weights, 1.0)), axis=-1)
            shares = entropy / jnp.log(jnp.maximum(keys, 2).astype(jnp.float32))
            counts = (keys > 1) & (total[..., 0] > 0)
            found[path] = ratio(jnp.sum(jnp.where(counts, shares, 0.0)), jnp.sum(counts))
        return found


@register("statistic", "largest_logit")
class LargestLogit(Statistic):
    """Largest score of an attention before the softmax, of all visible keys (Dehghani et al. 2023, figure 1)."""

    reads_activations = True
    is_maximum = True

    def of_pass(self, activations: Activations) -> Ratios:
        require(bool(activations.attention), "training.watch", "largest_logit needs a Transformer with attention")
        return {
            path: ratio(jnp.max(jnp.where(each.visible[:, None], each.scores, -jnp.inf)))
            for path, each in activations.attention.items()
        }
