"""Two ideas across layers: value embeddings of tokens, and a residual stream that keeps its input.

transformer-jax train --plugin=examples/between_layers.py --config=quickstart \
    --config.model.attention=value_embedding --config.model.normalization=with_input \
    --workdir=runs/between_layers
"""

from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp

import transformer_jax
from transformer_jax.config import setting
from transformer_jax.layers.modified_attention import SelfAttentionChange
from transformer_jax.layers.residual import PreNormResidual


@dataclass(frozen=True)
class ValueEmbeddingSettings:
    rows: int = setting(1024, "Rows of the table of a layer; larger token ids share rows.")


@transformer_jax.register("attention", "value_embedding", settings=ValueEmbeddingSettings)
class ValueEmbedding(SelfAttentionChange):
    """Values plus a learned multiple of an embedding of their token (Jordan et al. 2024)."""

    def setup(self):
        self.table = self.param(
            "table_kernel", nn.initializers.normal(0.1), (self.settings.rows, self.num_heads, self.value_size)
        )
        self.share = self.param("share", nn.initializers.constant(0.5), ())

    def memory(self, keys, values, state, token_ids):
        embedded = jnp.moveaxis(self.table[token_ids % self.settings.rows], 2, 1)
        return keys, (values + self.share * embedded).astype(values.dtype), state


@transformer_jax.register("residual", "with_input")
class WithInput(PreNormResidual):
    """a x + b x_0 + Dropout(Sublayer(Norm(a x + b x_0))), x_0 the input of the stack."""

    def setup(self):
        super().setup()
        self.shares = self.param("shares", lambda key: jnp.array([1.0, 0.0]))

    def enter(self, x, token_ids):
        return x, x

    def leave(self, stream):
        return stream[0]

    def before(self, stream):
        return self.norm(self.mixed(stream))

    def after(self, stream, y, *, train):
        return super().after(self.mixed(stream), y, train=train), stream[1]

    def mixed(self, stream):
        x, first = stream
        return (self.shares[0] * x + self.shares[1] * first).astype(x.dtype)
