"""Residual connection, dropout and norm around a sublayer: ``after(x, sublayer(before(x)))``."""

from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Hidden, PyTree, TokenIds
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.normalization import LayerNorm
from transformer_jax.layers.site import Site
from transformer_jax.precision import rounding_barrier
from transformer_jax.registry.plugins import register


class Residual(nn.Module):
    """x + Dropout(Sublayer(x)), without a norm: the base of residual connections.

    Attributes:
        has_norm: Whether it uses ``make_norm``.
        has_final_norm: Whether the stack needs one more norm after its last layer.
        residual_dtype: The type of x between the layers, or None for the type of the outputs.
    """

    dropout: Rate
    make_norm: Callable[[], nn.Module] = LayerNorm
    has_norm: ClassVar[bool] = True
    has_final_norm: ClassVar[bool] = False
    residual_dtype: ClassVar[str | None] = "float32"

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site, **options: Any) -> "Residual":
        """Return the connection at ``site``, from settings of its part and of the model."""
        return cls(**options)

    def setup(self) -> None:
        self.norm = self.make_norm()
        self.sublayer_dropout = Dropout(self.dropout)

    # Not wrapped by Flax, so that models whose stream is the hidden states record no call.
    @nn.nowrap
    def enter(self, x: Hidden, token_ids: TokenIds) -> PyTree:
        """Return the residual stream of a stack with input x and ``token_ids`` [B, L].

        An array [B, L, ...] or a tree of them. Called for the first sublayer of the stack.
        """
        return x

    @nn.nowrap
    def leave(self, x: PyTree) -> Hidden:
        """Return the output [B, L, D] of the stack before its final norm, at its last sublayer."""
        return x

    def before(self, x: Hidden) -> Hidden:
        return x

    def after(self, x: Hidden, y: Hidden, *, train: bool) -> Hidden:
        return residual_sum(x, y, self.sublayer_dropout, train=train)


@register("residual", "post")
class PostNormResidual(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))), as published (Vaswani et al. 2017, section 5.4)."""

    residual_dtype: ClassVar[str | None] = None

    def after(self, x: Hidden, y: Hidden, *, train: bool) -> Hidden:
        return self.norm(residual_sum(x, y, self.sublayer_dropout, train=train))


@register("residual", "pre")
class PreNormResidual(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))), easier to optimize when deep (Xiong et al. 2020).

    Figure 1b; the stack needs one more norm after its last layer (table 1).
    """

    has_final_norm: ClassVar[bool] = True

    def before(self, x: Hidden) -> Hidden:
        return self.norm(x)


def residual_sum(x: Hidden, y: Hidden, dropout: Dropout, *, train: bool) -> Hidden:
    """Return x + Dropout(y), added in float32, in the type of x.

    A norm that follows has the ``rounding_barrier`` of the sum.
    """
    dropped = dropout(rounding_barrier(y).astype(jnp.float32), train=train)
    return (x.astype(jnp.float32) + dropped).astype(x.dtype)
