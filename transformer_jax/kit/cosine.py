"""Cosine attention (Henry et al. 2020, query-key normalization)."""

from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.checks import setting
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.registry.plugins import register


@dataclass(frozen=True)
class CosineSettings:
    initial_factor: float = setting(10.0, "Initial factor g on the cosines.")

    def check_new_run(self, config: ExperimentConfig) -> None:
        """Raises ConfigError for a second norm, which would erase g or be erased."""
        names = [each.name for each in config.selections if each.kind == "attention"]
        if "qk_norm" in names:
            raise ConfigError("model.attention", "cosine and qk_norm both normalize queries", "choose one")


@register("attention", "cosine", settings=CosineSettings)
class CosineAttention(AttentionChange):
    """Scores g cos(q, k) (equation 4); departure: a learned factor g of each head, ``factor`` [H], not one for all."""

    def setup(self) -> None:
        initial = nn.initializers.constant(self.settings.initial_factor)
        self.factor = self.param("factor", initial, (self.num_heads,))

    def queries(self, query_BHQK: Float[Array, "B H Q K"], positions: Int[AnyArray, "B Q"]) -> Float[Array, "B H Q K"]:
        """Unit queries times g and sqrt(K), by which every backend divides."""
        factor = self.factor[None, :, None, None] * self.key_size**0.5
        return (unit_norm(query_BHQK) * factor).astype(query_BHQK.dtype)

    def keys(self, key_BGMK: Float[Array, "B G M K"], positions: Int[AnyArray, "B M"]) -> Float[Array, "B G M K"]:
        return unit_norm(key_BGMK).astype(key_BGMK.dtype)


def unit_norm(vectors: Float[Array, "B H L K"]) -> Float[Array, "B H L K"]:
    vectors = vectors.astype(jnp.float32)
    # Epsilon inside of the root: the gradient at zero is finite.
    return vectors / jnp.sqrt(jnp.sum(vectors**2, axis=-1, keepdims=True) + 1e-12)
