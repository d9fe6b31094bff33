"""Gradient noise scale: the largest batch size that helps (McCandlish et al. 2018)."""

import jax.numpy as jnp
import optax

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.registry.plugins import register
from transformer_jax.training.statistics import Ratios, Statistic, ratio

NEEDS = "gradient_noise needs batching.accumulation_steps of at least 2"


@register("statistic", "gradient_noise")
class GradientNoise(Statistic):
    """tr(S) / |G|^2 in target tokens, from the micro-batches of gradient accumulation.

    Appendix A.1. A mean gradient over b tokens has the expected square |G|^2 + tr(S) / b.
    Micro-batches i = 1, ..., n of b_i of the B tokens of a batch: the mean of their squares,
    weighted by b_i, is expected to be |G|^2 + n tr(S) / B. Both estimates are added up over the
    updates of a line of the log and divided then. If they are too noisy, the result is negative or
    erratic.
    """

    @staticmethod
    def check_new_run(config: ExperimentConfig) -> None:
        if config.batching.accumulation_steps <= 1:
            raise ConfigError("training.watch", NEEDS)

    def of_micro_batch(self, gradient: PyTree, tokens: Array) -> Ratios:
        """Return the squared norm of the gradient over its tokens, and 1 if it has tokens."""
        return {"": ratio(optax.tree.norm(gradient, squared=True) / jnp.maximum(tokens, 1.0), tokens > 0)}

    def of_update(self, params: PyTree, gradient: PyTree, tokens: Array, joined: Ratios) -> Ratios:
        if not joined:
            raise ConfigError("training.watch", NEEDS)
        squares, count = joined[""]
        of_whole = optax.tree.norm(gradient, squared=True)
        noise = jnp.where(count > 1, (squares - tokens * of_whole) / jnp.maximum(count - 1, 1.0), 0.0)
        return {"": ratio(noise, jnp.where(count > 1, of_whole - noise / tokens, 0.0))}
