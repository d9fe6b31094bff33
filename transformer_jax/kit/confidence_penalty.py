"""Penalty of confident predictions, a form of label smoothing (Pereyra et al. 2017)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.config import ExperimentConfig
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.loss_terms import LossTerm, require_no_label_smoothing


@dataclass(frozen=True)
class ConfidencePenaltySettings:
    weight: float = setting(0.1, "Factor on the negative entropy.", program="traced")

    def check_new_run(self, config: ExperimentConfig) -> None:
        require_no_label_smoothing(config, "confidence_penalty")


@register("loss_term", "confidence_penalty", settings=ConfidencePenaltySettings)
class ConfidencePenalty(LossTerm):
    """-weight H(p), the entropy of the prediction in nats; use label_smoothing=0 (Pereyra et al. 2017, section 3)."""

    def of_logits(self, labels: Array, weights: Array) -> Partial:
        return Partial(negative_entropy, jnp.asarray(self.settings.weight, jnp.float32))


def negative_entropy(weight: Array, logits: Float[Array, "*B V"], labels: Int[Array, "*B"]) -> Float[Array, "*B"]:
    log_probabilities = jax.nn.log_softmax(logits)
    return weight * jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)
