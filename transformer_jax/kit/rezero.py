"""ReZero (Bachlechner et al. 2021, equation 4 and section 5)."""

from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.array_types import Hidden
from transformer_jax.layers.residual import Residual, residual_sum
from transformer_jax.registry.plugins import register


@register("residual", "rezero")
class ReZeroResidual(Residual):
    """x + g Dropout(Sublayer(x)), without norms, with a learned g that is initially 0."""

    has_norm: ClassVar[bool] = False

    def setup(self) -> None:
        super().setup()
        self.gain = self.param("gain", nn.initializers.zeros, ())

    def after(self, x: Hidden, y: Hidden, *, train: bool) -> Hidden:
        return residual_sum(x, y.astype(jnp.float32) * self.gain, self.sublayer_dropout, train=train)


register("sharding", r"_residual/gain$")(PartitionSpec())
