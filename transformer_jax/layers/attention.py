"""Scaled dot-product attention and multi-head attention (Vaswani et al. 2017, sections 3.2.1 and 3.2.2)."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float
from transformer_jax.contraction import contract
from transformer_jax.layers.dropout import Dropout
from transformer_jax.layers.initialization import xavier_uniform

# Finite, so that a row that may attend nowhere (padding) gets uniform weights and not NaN.
MASKED_SCORE = -1e9


def scaled_dot_product_attention(
    query_BHQK: Float[Array, "B H Q K"],
    key_BHMK: Float[Array, "B H M K"],
    value_BHMU: Float[Array, "B H M U"],
    mask_BQM: Bool[Array, "#B #Q M"],
    *,
    drop_weights: Callable[[Array], Array] = lambda weights: weights,
    dtype: str = "float32",
) -> tuple[Float[Array, "B H Q U"], Float[Array, "B H Q M"]]:
    """softmax(Q Kᵀ / sqrt(d_k)) V (equation 1), in every head; softmax in float32.

    Returns the output and the weights before dropout. ``drop_weights`` is applied to the weights that multiply V.
    """
    scaled_query = query_BHQK * query_BHQK.shape[-1] ** -0.5
    scores_BHQM = contract("BHQK,BHMK->BHQM", scaled_query, key_BHMK, dtype)
    mask = jnp.broadcast_to(mask_BQM[:, None, :, :], scores_BHQM.shape)
    weights_BHQM = jax.nn.softmax(jnp.where(mask, scores_BHQM, MASKED_SCORE), axis=-1)
    return contract("BHQM,BHMU->BHQU", drop_weights(weights_BHQM), value_BHMU, dtype), weights_BHQM


class MultiHeadAttention(nn.Module):
    """Attention in ``num_heads`` learned subspaces (section 3.2.2); projections without biases, as in its equations.

    Every call sows the weights, before dropout, as ``attention_weights`` [B, H, Q, M] into ``intermediates``.
    """

    num_heads: int
    key_size: int
    value_size: int
    d_model: int
    dropout: float = 0.0
    dtype: str = "float32"

    def setup(self) -> None:
        heads_in, heads_out = xavier_uniform(0, (1, 2)), xavier_uniform((0, 1), 2)
        self.query_kernel = self.param("query", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.key_kernel = self.param("key", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.value_kernel = self.param("value", heads_in, (self.d_model, self.num_heads, self.value_size))
        self.output_kernel = self.param("output", heads_out, (self.num_heads, self.value_size, self.d_model))
        self.weight_dropout = Dropout(self.dropout)

    def __call__(
        self,
        queries: Float[Array, "B Q D"],
        memory: Float[Array, "B M D"],
        mask: Bool[Array, "#B #Q M"],
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` [B, Q, D] to ``memory`` [B, M, D]."""
        keys, values = self.project_memory(memory)
        return self.attend(queries, keys, values, mask, train=train)

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        """Keys and values of ``memory``; they can be cached, since they do not depend on the query."""
        keys = _heads_first(contract("BMD,DHK->BMHK", memory, self.key_kernel, self.dtype))
        values = _heads_first(contract("BMD,DHU->BMHU", memory, self.value_kernel, self.dtype))
        return keys, values

    def attend(
        self,
        queries: Float[Array, "B Q D"],
        keys: Float[Array, "B H M K"],
        values: Float[Array, "B H M U"],
        mask: Bool[Array, "#B #Q M"],
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` [B, Q, D] to projected keys and values."""
        query_BHQK = _heads_first(contract("BQD,DHK->BQHK", queries, self.query_kernel, self.dtype))
        heads_BHQU, weights_BHQM = scaled_dot_product_attention(
            query_BHQK,
            keys,
            values,
            mask,
            drop_weights=lambda weights: self.weight_dropout(weights, train=train),
            dtype=self.dtype,
        )
        self.sow("intermediates", "attention_weights", weights_BHQM)
        return contract("BQHU,HUD->BQD", jnp.swapaxes(heads_BHQU, 1, 2), self.output_kernel, self.dtype)


def _heads_first(projected: Float[Array, "B L H K"]) -> Float[Array, "B H L K"]:
    """Turned after the product, not by it: on a CPU the product would turn its larger operand."""
    return jnp.swapaxes(projected, 1, 2)
