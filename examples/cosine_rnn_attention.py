"""Cosine attention for recurrent models: scores are cosines, times a learned sharpness.

transformer-jax train --plugin=examples/cosine_rnn_attention.py --config=seq2seq:luong_general \
    --config.model.attention=cosine --workdir=runs/cosine_rnn
"""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp

import transformer_jax
from transformer_jax.layers.rnn_attention import ContentAttention, WholeSource


class CosineScore(nn.Module):
    """``keys`` reads the memory once a sentence, and queries are compared with all of them."""

    width: int

    def setup(self):
        self.key = nn.Dense(self.width, use_bias=False)
        self.sharpness = self.param("sharpness", nn.initializers.constant(5.0), ())

    def keys(self, memory):
        return unit_norm(self.key(memory))

    def __call__(self, query, keys):
        return self.sharpness * jnp.einsum("BQD,BMD->BQM", unit_norm(query), keys)


def unit_norm(vectors):
    # Epsilon inside of the root: the gradient at zero is finite.
    return vectors / jnp.sqrt(jnp.sum(vectors**2, axis=-1, keepdims=True) + 1e-12)


@transformer_jax.register("rnn_attention", "cosine")
def cosine(settings, config, site, *, precision):
    return ContentAttention(partial(CosineScore, config.d_hidden), WholeSource, precision)
