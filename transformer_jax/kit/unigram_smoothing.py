"""Label smoothing with frequencies of tokens (Pereyra et al. 2017, section 3.2)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.loss_terms import LossTerm


@dataclass(frozen=True)
class UnigramSmoothingSettings:
    weight: float = setting(0.1, "Probability of all other tokens together.", below=1, program="traced")

    def check_new_run(self, config: ExperimentConfig) -> None:
        if smoothing := config.training.label_smoothing:
            problem = f"{smoothing} would smooth twice, since unigram_smoothing replaces it; use 0"
            raise ConfigError("training.label_smoothing", problem)


@register("loss_term", "unigram_smoothing", settings=UnigramSmoothingSettings)
class UnigramSmoothing(LossTerm):
    """Cross entropy against (1 - weight) one-hot + weight u; use label_smoothing=0.

    u are the frequencies of the labels, counted over the whole batch. With accumulation they are
    over a micro-batch; if the mesh has only a ``data`` axis, over the part of it on one device.
    Recurrent models count over one device on every mesh. The difference from the cross entropy is
    weight (z_label - sum u z).
    """

    is_sum_of_tokens = False

    def of_logits(self, labels: Int[Array, "B T"], weights: Float[Array, "B T"]) -> Partial:
        shares = weights / jnp.maximum(jnp.sum(weights), 1.0)
        return Partial(difference, jnp.asarray(self.settings.weight, jnp.float32), labels, shares)


def difference(
    weight: Array,
    all_labels: Int[Array, "B T"],
    shares: Float[Array, "B T"],
    logits: Float[Array, "*B V"],
    labels: Int[Array, "*B"],
) -> Float[Array, "*B"]:
    frequencies = jnp.zeros(logits.shape[-1]).at[all_labels].add(shares)
    mean = jnp.matmul(logits, frequencies, precision="highest")
    return weight * (jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0] - mean)
