"""Cosine attention: the score of a query and a key is the cosine of their angle, times a learned sharpness of each head.

transformer-jax train --plugin=examples/cosine_attention.py --config=quickstart \
    --config.model.attention=cosine --workdir=runs/cosine
"""

import flax.linen as nn
import jax.numpy as jnp

import transformer_jax
from transformer_jax.layers.attention_variants import ScoredAttention


@transformer_jax.register("attention", "cosine")
class CosineAttention(ScoredAttention):
    """Scores s cos(q, k) (Henry et al. 2020, query-key normalization)."""

    def setup(self):
        super().setup()
        self.sharpness = self.param("sharpness", nn.initializers.constant(10.0), (self.num_heads,))

    def scores(self, query, key, positions):
        return self.sharpness[None, :, None, None] * jnp.einsum("BHQK,BHMK->BHQM", unit(query), unit(key))


def unit(vector):
    return vector / (jnp.linalg.norm(vector, axis=-1, keepdims=True) + 1e-6)
