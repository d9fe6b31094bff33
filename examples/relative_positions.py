"""Positions inside the scores of self-attention, three ways: learned relative ones, linear biases, rotations.

transformer-jax train --plugin=examples/relative_positions.py --config=quickstart --config.model.attention=alibi \
    --config.model.positions=nowhere --workdir=runs/alibi
"""

import flax.linen as nn
import jax.numpy as jnp

import transformer_jax
from transformer_jax.layers.attention_variants import ScoredAttention

FARTHEST = 16


@transformer_jax.register("attention", "shaw")
class ShawAttention(ScoredAttention):
    """q (k + a) / sqrt(K), with a learned vector a for each clipped distance (Shaw et al. 2018, equation 4)."""

    def setup(self):
        super().setup()
        shape = (2 * FARTHEST + 1, self.key_size)
        self.relative = self.param("relative", nn.initializers.normal(self.key_size**-0.5), shape)

    def scores(self, query, key, positions):
        scores = super().scores(query, key, positions)
        if positions is None:
            return scores
        vectors = self.relative[jnp.clip(positions.distance, -FARTHEST, FARTHEST) + FARTHEST]
        return scores + jnp.einsum("BHQK,QMK->BHQM", query * self.key_size**-0.5, vectors)


@transformer_jax.register("attention", "alibi")
class AlibiAttention(ScoredAttention):
    """q k / sqrt(K) - m |distance|, with a fixed slope m of each head (Press et al. 2022, section 3)."""

    def scores(self, query, key, positions):
        scores = super().scores(query, key, positions)
        if positions is None:
            return scores
        slopes = 2.0 ** (-8.0 * (jnp.arange(self.num_heads) + 1) / self.num_heads)
        return scores - slopes[None, :, None, None] * jnp.abs(positions.distance)[None, None]


@transformer_jax.register("attention", "rotary")
class RotaryAttention(ScoredAttention):
    """Queries and keys rotated by angles that grow with their position (Su et al. 2021, equation 34)."""

    def scores(self, query, key, positions):
        if positions is not None:
            query, key = rotated(query, positions.query), rotated(key, positions.key)
        return super().scores(query, key, positions)


def rotated(vectors, positions):
    half = vectors.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-jnp.arange(half) / half)[None, :]
    cos, sin = jnp.cos(angles)[None, None], jnp.sin(angles)[None, None]
    first, second = vectors[..., :half], vectors[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


@transformer_jax.register("positions", "nowhere")
def nowhere(config):
    """No positions in the embeddings, for attentions that have their own."""
    return Nowhere(config.d_model)


class Nowhere(nn.Module):
    """Zeros."""

    d_model: int

    def __call__(self, positions, *, length):
        return jnp.zeros((*positions.shape, self.d_model))
