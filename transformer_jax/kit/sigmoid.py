"""Sigmoid attention: keys do not compete (Ramapuram et al. 2024, equation 3)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import MASKED_SCORE
from transformer_jax.registry.plugins import register, registered


@dataclass(frozen=True)
class SigmoidSettings:
    """No settings, only a check."""

    def check_new_run(self, config: ExperimentConfig) -> None:
        parts = registered("attention")
        names = [selection.name for selection in config.selections if selection.kind == "attention"]
        before = names[: names.index("sigmoid")]
        for method, others, remedy in (
            ("denominator_mod", names, "choose one"),
            ("weights_mod", before, "put sigmoid first"),
        ):
            plain = getattr(AttentionChange, method)
            lost = [name for name in others if getattr(parts[name], method, plain) is not plain]
            if lost:
                raise ConfigError("model.attention", f"sigmoid replaces the softmax, which {lost[0]} changes", remedy)


@register("attention", "sigmoid", settings=SigmoidSettings)
class SigmoidAttention(AttentionChange):
    """sigmoid(s_i - ln n), with the n keys that a query sees."""

    def weights_mod(self) -> Partial:
        return Partial(sigmoids)


def sigmoids(weights: Float[Array, "B H Q M"], scores: Float[Array, "B H Q M"]) -> Float[Array, "B H Q M"]:
    keys = jnp.sum(scores > MASKED_SCORE, axis=-1, keepdims=True)
    return jax.nn.sigmoid(scores - jnp.log(jnp.maximum(keys, 1).astype(jnp.float32)))
