"""Sandwich norm (Ding et al. 2021, CogView, section 2.4)."""

from typing import ClassVar

from transformer_jax.array_types import Hidden
from transformer_jax.layers.residual import Residual, residual_sum
from transformer_jax.registry.plugins import register


@register("residual", "sandwich")
class SandwichResidual(Residual):
    """x + Dropout(Norm(Sublayer(Norm(x)))): a norm before the sublayer and one after it."""

    has_final_norm: ClassVar[bool] = True

    def setup(self) -> None:
        super().setup()
        self.output_norm = self.make_norm()

    def before(self, x: Hidden) -> Hidden:
        return self.norm(x)

    def after(self, x: Hidden, y: Hidden, *, train: bool) -> Hidden:
        return residual_sum(x, self.output_norm(y), self.sublayer_dropout, train=train)
