"""Query-key normalization (Dehghani et al. 2023, section 2)."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.normalization import EPSILON, normalize
from transformer_jax.layers.site import Site
from transformer_jax.precision import Precision
from transformer_jax.registry.plugins import register


@register("attention", "qk_norm")
class QueryKeyNorm(AttentionChange):
    """softmax(LN(Q) LN(K)ᵀ / sqrt(K)): layer norms, ``query_gain`` and ``key_gain`` [K]."""

    epsilon: float = EPSILON

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site) -> AttentionChange:
        sizes = config.num_heads, config.head_key_size, config.d_model
        return cls(*sizes, site, settings, epsilon=config.norm_epsilon)

    def setup(self) -> None:
        self.query_gain = self.param("query_gain", nn.initializers.ones, (self.key_size,))
        self.key_gain = self.param("key_gain", nn.initializers.ones, (self.key_size,))

    def queries(self, query_BHQK: Float[Array, "B H Q K"], positions: Int[AnyArray, "B Q"]) -> Float[Array, "B H Q K"]:
        return normalized(query_BHQK, self.query_gain, self.epsilon)

    def keys(self, key_BGMK: Float[Array, "B G M K"], positions: Int[AnyArray, "B M"]) -> Float[Array, "B G M K"]:
        return normalized(key_BGMK, self.key_gain, self.epsilon)


def normalized(vectors: Float[Array, "B H L K"], gain: Float[Array, " K"], epsilon: float) -> Float[Array, "B H L K"]:
    # Rows and heads may both be sharded.
    precision = Precision(output=str(vectors.dtype), merges_positions=False)
    return normalize(vectors, gain, jnp.zeros_like(gain), epsilon, precision)
