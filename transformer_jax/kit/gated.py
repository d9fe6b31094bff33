"""Gated attention: a sigmoid gate on the output of every head (Qiu et al. 2025, section 2.2)."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.array_types import Array, Float
from transformer_jax.config.checks import setting
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.precision import einsum
from transformer_jax.registry.plugins import register

register("sharding", r"changes_gated/head_kernel$")(PartitionSpec("fsdp", "tensor"))


@dataclass(frozen=True)
class GatedSettings:
    gates: Literal["elementwise", "headwise"] = setting("elementwise", "A gate for a dimension, or for a head.")


@register("attention", "gated", settings=GatedSettings)
class GatedAttention(AttentionChange):
    """Heads times sigmoid(X W), with the input X of the queries (equation 5, at the position G1).

    Parameters: ``gate_kernel`` [D, H, U], headwise ``head_kernel`` [D, H].
    """

    def setup(self) -> None:
        if self.settings.gates == "headwise":
            self.kernel = self.param("head_kernel", xavier_uniform(0, 1), (self.d_model, self.num_heads))
        else:
            shape = self.d_model, self.num_heads, self.value_size
            self.kernel = self.param("gate_kernel", xavier_uniform(0, (1, 2)), shape)

    def heads(self, heads_BHQU: Float[Array, "B H Q U"], inputs: Float[Array, "B Q D"]) -> Float[Array, "B H Q U"]:
        kernel = self.kernel.reshape(*self.kernel.shape[:2], -1)
        gates_BQHU = einsum("BQD,DHU->BQHU", inputs, kernel, self.precision.float32_output)
        gates_BHQU = jax.nn.sigmoid(jnp.swapaxes(gates_BQHU, 1, 2))
        return (heads_BHQU * gates_BHQU).astype(heads_BHQU.dtype)
