"""Self-attention with relative position representations (Shaw et al. 2018)."""

from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float
from transformer_jax.config.checks import setting
from transformer_jax.layers.modified_attention import SelfAttentionChange
from transformer_jax.layers.scaled_dot_product import At
from transformer_jax.registry.plugins import register


@dataclass(frozen=True)
class ShawSettings:
    max_distance: int = setting(16, "k: distances are clipped to -k, ..., k.")


@register("positions", "shaw", settings=ShawSettings)
class RelativeKeys(SelfAttentionChange):
    """q (k + a) / sqrt(K) in self-attention, with a learned vector a for a clipped distance.

    Equations 2 and 4. Parameter: ``relative`` [2 k + 1, K]. As in the paper the heads of a layer
    share the vectors. Departure: values get no such vectors; the paper reports no gain from them
    (table 3).
    """

    def setup(self) -> None:
        shape = (2 * self.settings.max_distance + 1, self.key_size)
        self.relative = self.param("relative", nn.initializers.normal(self.key_size**-0.5), shape)

    def score_mod(self) -> Partial:
        return Partial(with_relative_keys, self.relative)


def with_relative_keys(
    relative_NK: Float[Array, "N K"], scores: Float[Array, "B H Q M"], at: At
) -> Float[Array, "B H Q M"]:
    farthest = len(relative_NK) // 2
    by_distance = jnp.einsum("BHQK,NK->BHQN", at.query.astype(jnp.float32), relative_NK, precision="highest")
    index = jnp.clip(at.distance, -farthest, farthest) + farthest
    return scores + jnp.take_along_axis(by_distance, index[:, None], axis=3)
