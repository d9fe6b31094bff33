"""Softmax with a one in its denominator, so that a head can attend to nothing (Miller 2023, "Attention is off by one")."""

import jax
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.config import ExperimentConfig
from transformer_jax.layers.modified_attention import AttentionChange, require_first_weights
from transformer_jax.registry.plugins import register


@register("attention", "softmax_one")
class SoftmaxOne(AttentionChange):
    """exp(s_i) / (1 + sum exp(s_j)), weights that add up to less than 1 (Miller 2023)."""

    @staticmethod
    def check_new_run(config: ExperimentConfig) -> None:
        """Raises ConfigError after a change of weights, which are no softmax of these scores."""
        require_first_weights(config, "softmax_one")

    def weights_mod(self) -> Partial:
        return Partial(with_one)


def with_one(weights: Float[Array, "B H Q M"], scores: Float[Array, "B H Q M"]) -> Float[Array, "B H Q M"]:
    """The softmax times Z / (1 + Z), the sigmoid of log Z."""
    return weights * jax.nn.sigmoid(jax.nn.logsumexp(scores, axis=-1, keepdims=True))
