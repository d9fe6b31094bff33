"""Relative position biases of T5 (Raffel et al. 2020, section 2.1)."""

import math
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jax.tree_util import Partial

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.config import ConfigError
from transformer_jax.config.checks import setting
from transformer_jax.config.model import TransformerLayersConfig
from transformer_jax.layers.positions import NoPositions
from transformer_jax.layers.scaled_dot_product import At
from transformer_jax.layers.site import Site
from transformer_jax.registry.plugins import register

register("sharding", r"positions/biases$")(PartitionSpec())


@dataclass(frozen=True)
class T5Settings:
    buckets: int = setting(32, "Number of buckets of distances.", at_least=4)
    max_distance: int = setting(128, "Distance from which on all share the last bucket.", at_least=2)

    def __post_init__(self) -> None:
        if self.max_distance <= self.buckets // 2:
            problem = f"{self.max_distance} must be more than {self.buckets // 2}, half of the buckets"
            raise ConfigError("parts.t5.max_distance", problem)


@dataclass(frozen=True)
class Buckets:
    """Half of the buckets hold one distance, the others grow with its logarithm.

    Two directions share them equally.
    """

    buckets: int
    max_distance: int
    is_bidirectional: bool

    def __call__(self, biases: Float[Array, "N H"], scores: Float[Array, "B H Q M"], at: At) -> Float[Array, "B H Q M"]:
        return scores + jnp.moveaxis(biases[self.of(at.distance)], 3, 1)

    def of(self, distance: Int[Array, "B Q M"]) -> Int[Array, "B Q M"]:
        """Return the buckets of distances, key position minus query position."""
        buckets = self.buckets // 2 if self.is_bidirectional else self.buckets
        exact, far = buckets // 2, jnp.abs(distance) if self.is_bidirectional else jnp.maximum(-distance, 0)
        growth = (buckets - exact) / math.log(self.max_distance / exact)
        logarithmic = exact + (jnp.log(jnp.maximum(far, exact) / exact) * growth).astype(jnp.int32)
        bucket = jnp.where(far < exact, far, jnp.minimum(logarithmic, buckets - 1))
        return bucket + buckets * (distance > 0) if self.is_bidirectional else bucket


class SharedBiases(NoPositions):
    """A learned bias for every head and bucket of distances, shared by all layers of a stack.

    Parameter: ``biases`` [N, H]. Departure from T5: scores keep their 1 / sqrt(K).
    """

    num_heads: int
    buckets: Buckets

    def setup(self) -> None:
        initial = nn.initializers.normal(self.d_model**-0.5)
        self.biases = self.param("biases", initial, (self.buckets.buckets, self.num_heads))

    def score_mod(self) -> Partial:
        return Partial(self.buckets, self.biases)


@register("positions", "t5", settings=T5Settings)
def t5(settings: T5Settings, config: TransformerLayersConfig, site: Site) -> SharedBiases | None:
    """Relative biases in self-attention, shared by the layers of a stack, as the only positions."""
    buckets = Buckets(settings.buckets, settings.max_distance, not site.is_causal)
    return SharedBiases(config.d_model, config.num_heads, buckets) if site.kind == "embedding" else None
