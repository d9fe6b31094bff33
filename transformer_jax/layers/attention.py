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
        heads_in = xavier_uniform(0, (1, 2))
        self.query_kernel = self.param("query", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.key_kernel = self.param("key", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.value_kernel = self.param("value", heads_in, (self.d_model, self.num_heads, self.value_size))
        self.weight_dropout = Dropout(self.dropout)
        self._set_up_output()

    def _set_up_output(self) -> None:
        shape = self.num_heads, self.value_size, self.d_model
        self.output_kernel = self.param("output", xavier_uniform((0, 1), 2), shape)

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
        return self._in_heads(memory, self.key_kernel), self._in_heads(memory, self.value_kernel)

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
        heads_BHQU, weights_BHQM = scaled_dot_product_attention(
            self._in_heads(queries, self.query_kernel),
            keys,
            values,
            mask,
            drop_weights=lambda weights: self.weight_dropout(weights, train=train),
            dtype=self.dtype,
        )
        self.sow("intermediates", "attention_weights", weights_BHQM)
        return self._merged(jnp.swapaxes(heads_BHQU, 1, 2), mask)

    def _in_heads(
        self, inputs_BLD: Float[Array, "B L D"], kernel_DHK: Float[Array, "D H K"]
    ) -> Float[Array, "B H L K"]:
        # Turned after the product, not by it: on a CPU the product would turn its larger operand.
        return jnp.swapaxes(contract("BLD,DHK->BLHK", inputs_BLD, kernel_DHK, self.dtype), 1, 2)

    def _merged(self, heads_BQHU: Float[Array, "B Q H U"], mask: Bool[Array, "#B #Q M"]) -> Float[Array, "B Q D"]:
        return contract("BQHU,HUD->BQD", heads_BQHU, self.output_kernel, self.dtype)


class RectifiedAttention(MultiHeadAttention):
    """Multi-head attention as in an early public re-implementation (Kyubyong/transformer, 2017), not as in the paper.

    Queries, keys and values pass a ReLU, the heads are put side by side without a projection, and a query that may attend
    nowhere gets zeros. ``num_heads`` times ``value_size`` must be ``d_model``. Departs from that code: no biases.
    """

    def _set_up_output(self) -> None:
        pass

    def _in_heads(
        self, inputs_BLD: Float[Array, "B L D"], kernel_DHK: Float[Array, "D H K"]
    ) -> Float[Array, "B H L K"]:
        return jax.nn.relu(super()._in_heads(inputs_BLD, kernel_DHK))

    def _merged(self, heads_BQHU: Float[Array, "B Q H U"], mask: Bool[Array, "#B #Q M"]) -> Float[Array, "B Q D"]:
        is_query = jnp.any(mask, axis=-1, keepdims=True)
        return jnp.where(is_query, heads_BQHU.reshape(*heads_BQHU.shape[:2], -1), 0.0)
