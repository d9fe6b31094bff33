"""Residual wrapper of a sublayer: residual connection, dropout and layer normalization, all decided here."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Hidden
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.normalization import LayerNorm
from transformer_jax.precision import rounding_barrier

Sublayer = Callable[[Hidden], Hidden]


class PostNormResidual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), as published (Vaswani et al. 2017, sections 3.1 and 5.4)."""

    dropout: Rate
    make_norm: Callable[[], LayerNorm] = LayerNorm

    def setup(self) -> None:
        self.norm = self.make_norm()
        self.sublayer_dropout = Dropout(self.dropout)

    def __call__(self, inputs: Hidden, sublayer: Sublayer, *, train: bool) -> Hidden:
        """[B, L, D] to [B, L, D]."""
        return self.norm(summed(inputs, self.sublayer_dropout, sublayer(inputs), train=train))


class PreNormResidual(nn.Module):
    """x + Dropout(Sublayer(LayerNorm(x))), easier to optimize when deep (Xiong et al. 2020, figure 1b)."""

    dropout: Rate
    make_norm: Callable[[], LayerNorm] = LayerNorm

    def setup(self) -> None:
        self.norm = self.make_norm()
        self.sublayer_dropout = Dropout(self.dropout)

    def __call__(self, inputs: Hidden, sublayer: Sublayer, *, train: bool) -> Hidden:
        """[B, L, D] to [B, L, D]."""
        return summed(inputs, self.sublayer_dropout, sublayer(self.norm(inputs)), train=train)


def summed(inputs: Hidden, dropout: Dropout, output: Hidden, *, train: bool) -> Hidden:
    """``inputs`` plus what ``dropout`` leaves of a sublayer's ``output``, added in float32, in the type of ``inputs``."""
    kept = dropout(rounding_barrier(output).astype(jnp.float32), train=train)
    return rounding_barrier((inputs.astype(jnp.float32) + kept).astype(inputs.dtype))
