"""Residual connection, dropout and layer normalization around a sublayer: ``after(x, sublayer(before(x)))``."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Hidden
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.normalization import LayerNorm
from transformer_jax.precision import rounding_barrier


class PostNormResidual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), as published (Vaswani et al. 2017, sections 3.1 and 5.4)."""

    dropout: Rate
    make_norm: Callable[[], LayerNorm] = LayerNorm

    def setup(self) -> None:
        self.norm = self.make_norm()
        self.sublayer_dropout = Dropout(self.dropout)

    def before(self, x: Hidden) -> Hidden:
        return x

    def after(self, x: Hidden, y: Hidden, *, train: bool) -> Hidden:
        """The norm of the sum of x and the sublayer's output y."""
        return self.norm(residual_sum(x, y, self.sublayer_dropout, train=train))


class PreNormResidual(nn.Module):
    """x + Dropout(Sublayer(LayerNorm(x))), easier to optimize when deep (Xiong et al. 2020, figure 1b)."""

    dropout: Rate
    make_norm: Callable[[], LayerNorm] = LayerNorm

    def setup(self) -> None:
        self.norm = self.make_norm()
        self.sublayer_dropout = Dropout(self.dropout)

    def before(self, x: Hidden) -> Hidden:
        """The sublayer reads the norm of x."""
        return self.norm(x)

    def after(self, x: Hidden, y: Hidden, *, train: bool) -> Hidden:
        """The sum of x and the sublayer's output y."""
        return residual_sum(x, y, self.sublayer_dropout, train=train)


Residual = PostNormResidual | PreNormResidual


def residual_sum(x: Hidden, y: Hidden, dropout: Dropout, *, train: bool) -> Hidden:
    """x + Dropout(y), added in float32, in the type of x."""
    dropped = dropout(rounding_barrier(y).astype(jnp.float32), train=train)
    return rounding_barrier((x.astype(jnp.float32) + dropped).astype(x.dtype))
