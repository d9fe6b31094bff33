"""Value residual learning: attention to the first layer's values too (Zhou et al. 2024)."""

import flax.linen as nn
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.array_types import Array, Float, TokenIds
from transformer_jax.layers.modified_attention import SelfAttentionChange
from transformer_jax.registry.plugins import register

register("sharding", r"changes_value_residual/shares$")(PartitionSpec())


@register("attention", "value_residual")
class ValueResidual(SelfAttentionChange):
    """Values a V_1 + b V_n of layer n, with V_1 of the first layer; learned a, b, initially 1/2.

    Learnable-ResFormer, section 3. The first layer has (a + b) V_1. Parameters: ``shares`` [2], a
    and b. A cache holds sums.
    """

    def setup(self) -> None:
        self.shares = self.param("shares", nn.initializers.constant(0.5), (2,))

    def memory(
        self,
        key_BGMK: Float[Array, "B G M K"],
        value_BGMU: Float[Array, "B G M U"],
        state: Float[Array, "B G M U"] | None,
        token_ids: TokenIds,
    ) -> tuple[Float[Array, "B G M K"], Float[Array, "B G M U"], Float[Array, "B G M U"]]:
        first = value_BGMU if state is None else state
        mixed = self.shares[0] * first.astype(jnp.float32) + self.shares[1] * value_BGMU.astype(jnp.float32)
        return key_BGMK, mixed.astype(value_BGMU.dtype), first
