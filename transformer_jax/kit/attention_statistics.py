"""Entropy and largest score of attentions, signs of collapse (Zhai et al. 2023)."""

import jax.numpy as jnp

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.models.inspection import Activations
from transformer_jax.registry.plugins import register
from transformer_jax.training.statistics import Ratios, Statistic, ratio


class OfAttention(Statistic):
    """A statistic of the attentions of a Transformer."""

    reads_activations = True

    @staticmethod
    def check_new_run(config: ExperimentConfig) -> None:
        # Models of word vectors have no ``attention_layers``.
        kinds = getattr(config.model, "attention_layers", {})
        if not any(layers for layers, _ in kinds.values()):
            problem = f"{config.training.watch} needs layers with attention, which this model does not have"
            raise ConfigError("training.watch", problem)


@register("statistic", "attention_entropy")
class AttentionEntropy(OfAttention):
    """Mean entropy of the weights of an attention in units of ln n, n the visible keys of a query.

    0: one key, 1: uniform. Weights are scaled to sum to 1. Queries that see fewer than two keys, or
    attend to none, do not count. An attention with negative weights, which have no entropy, is left
    out of the log.
    """

    def of_pass(self, activations: Activations) -> Ratios:
        ratios = {}
        for path, (_, weights, visible) in activations.attention.items():
            keys = jnp.broadcast_to(jnp.sum(visible, axis=-1)[:, None], weights.shape[:3])
            is_negative, weights = jnp.any(weights < 0), jnp.maximum(weights, 0.0)
            total = jnp.sum(weights, axis=-1, keepdims=True)
            weights /= jnp.where(total > 0, total, 1.0)
            entropy = -jnp.sum(weights * jnp.log(jnp.where(weights > 0, weights, 1.0)), axis=-1)
            shares = entropy / jnp.log(jnp.maximum(keys, 2).astype(jnp.float32))
            counts = (keys > 1) & (total[..., 0] > 0) & ~is_negative
            ratios[path] = ratio(jnp.sum(jnp.where(counts, shares, 0.0)), jnp.sum(counts))
        return ratios


@register("statistic", "largest_logit")
class LargestLogit(OfAttention):
    """Largest score of visible keys before the softmax (Dehghani et al. 2023, figure 1)."""

    is_maximum = True

    def of_pass(self, activations: Activations) -> Ratios:
        return {
            path: ratio(jnp.max(jnp.where(attention.visible[:, None], attention.scores, -jnp.inf)))
            for path, attention in activations.attention.items()
        }
