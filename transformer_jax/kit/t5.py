"""Relative position biases of T5 (Raffel et al. 2020, section 2.1)."""

import math
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.config.checks import require, setting
from transformer_jax.config.model import TransformerLayersConfig
from transformer_jax.config.plugins import register
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.scaled_dot_product import At
from transformer_jax.layers.site import Site


@dataclass(frozen=True)
class T5Settings:
    buckets: int = setting(32, "Number of buckets of distances.", at_least=4)
    max_distance: int = setting(128, "Distance from which on all share the last bucket.", at_least=2)

    def __post_init__(self) -> None:
        problem = f"{self.max_distance} must be more than {self.buckets // 2}, half of the buckets"
        require(self.max_distance > self.buckets // 2, "parts.t5.max_distance", problem)


class RelativeBiases(AttentionChange):
    """A learned bias for every head and bucket of distances; ``table`` [N, H].

    Departures from T5: every layer has its own table, where T5 shares one in each stack; scores keep their 1 / sqrt(K).
    """

    def setup(self) -> None:
        initial = nn.initializers.normal(self.d_model**-0.5)
        self.table = self.param("table", initial, (self.settings.buckets, self.num_heads))

    def score_mod(self) -> Partial:
        return Partial(Buckets(self.settings.buckets, self.settings.max_distance, not self.site.is_causal), self.table)


@dataclass(frozen=True)
class Buckets:
    """Half of the buckets hold one distance each, the others grow with its logarithm; two directions share them equally."""

    buckets: int
    max_distance: int
    is_bidirectional: bool

    def __call__(self, table: Float[Array, "N H"], scores: Float[Array, "B H Q M"], at: At) -> Float[Array, "B H Q M"]:
        return scores + jnp.moveaxis(table[self.of(at.distance)], 3, 1)

    def of(self, distance: Int[Array, "B Q M"]) -> Int[Array, "B Q M"]:
        """The bucket of each distance, key position minus query position."""
        buckets = self.buckets // 2 if self.is_bidirectional else self.buckets
        exact, far = buckets // 2, jnp.abs(distance) if self.is_bidirectional else jnp.maximum(-distance, 0)
        growth = (buckets - exact) / math.log(self.max_distance / exact)
        logarithmic = exact + (jnp.log(jnp.maximum(far, exact) / exact) * growth).astype(jnp.int32)
        bucket = jnp.where(far < exact, far, jnp.minimum(logarithmic, buckets - 1))
        return bucket + buckets * (distance > 0) if self.is_bidirectional else bucket


@register("positions", "t5", settings=T5Settings)
def t5(settings: T5Settings, config: TransformerLayersConfig, site: Site) -> AttentionChange | None:
    """Relative biases in self-attention, no positions in the embeddings; every layer has a table, where T5 shares one."""
    return RelativeBiases.of(settings, config, site) if site.kind == "self" else None
