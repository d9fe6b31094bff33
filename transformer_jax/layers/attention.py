"""Multi-head attention (Vaswani et al. 2017, section 3.2.2)."""

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float, Int
from transformer_jax.layers.attention_backends import AttentionBackend, ByLength
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import scaled_dot_product_attention
from transformer_jax.precision import FLOAT32, Precision, einsum


class MultiHeadAttention(nn.Module):
    """Attention in ``num_heads`` learned subspaces (section 3.2.2); projections without biases, as in its equations.

    When the collection ``intermediates`` is asked for, every call sows the weights, before dropout, into it as
    ``attention_weights`` [B, H, Q, M]; then, and one step at a time, they are computed in full, otherwise by ``backend``.
    """

    num_heads: int
    key_size: int
    value_size: int
    d_model: int
    dropout: Rate = None
    precision: Precision = FLOAT32
    backend: AttentionBackend = ByLength()

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
        mask: SentenceMask,
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` [B, Q, D] to ``memory`` [B, M, D]."""
        keys, values = self.project_memory(memory)
        if self.is_mutable_collection("intermediates"):
            return self.attend(queries, jnp.swapaxes(keys, 2, 3), values, mask.array(), train=train)
        query_BHQK = self._project_queries(queries)
        drops = self.weight_dropout.draw(train=train)
        heads_BHQU = self.backend(query_BHQK, keys, values, mask, drops=drops, precision=self.precision)
        return self._merged(jnp.swapaxes(heads_BHQU, 1, 2), jnp.asarray(mask.query_segments) != 0)

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        """Keys and values of ``memory``; they do not depend on the query."""
        return self._in_heads(memory, self.key_kernel), self._in_heads(memory, self.value_kernel)

    def cached_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H K M"], Float[Array, "B H M U"]]:
        """The same to be kept: already rounded as every product with them rounds them, which changes nothing.

        Keys are turned, so that no step of decoding has to turn them for its product.
        """
        keys, values = self.project_memory(memory)
        return jnp.swapaxes(keys, 2, 3).astype(self.precision.compute), values.astype(self.precision.compute)

    def attend(
        self,
        queries: Float[Array, "B Q D"],
        keys: Float[Array, "B H K M"],
        values: Float[Array, "B H M U"],
        mask: Bool[Array, "#B #Q M"],
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` [B, Q, D] to keys and values as ``cached_memory`` has them, weights in full."""
        heads_BHQU, weights_BHQM = scaled_dot_product_attention(
            self._project_queries(queries),
            jnp.swapaxes(keys, 2, 3),
            values,
            mask,
            drops=self.weight_dropout.draw(train=train),
            precision=self.precision,
        )
        self.sow("intermediates", "attention_weights", weights_BHQM)
        return self._merged(jnp.swapaxes(heads_BHQU, 1, 2), jnp.any(mask, axis=-1))

    def attend_to_slots(
        self,
        queries: Float[Array, "B W D"],
        keys: Float[Array, "B H K M"],
        values: Float[Array, "B H M U"],
        visible: Bool[Array, "B W M"],
        first: Int[Array, ""],
    ) -> Float[Array, "B W D"]:
        """Attends from one more position in each beam to slots, of which this step wrote those from ``first`` on."""
        return self.attend(queries, keys, values, visible, train=False)

    def _project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        return self._in_heads(queries, self.query_kernel)

    def _in_heads(
        self, inputs_BLD: Float[Array, "B L D"], kernel_DHK: Float[Array, "D H K"]
    ) -> Float[Array, "B H L K"]:
        # Turned after the product, not by it: on a CPU the product would turn its larger operand.
        return jnp.swapaxes(einsum("BLD,DHK->BLHK", inputs_BLD, kernel_DHK, self.precision), 1, 2)

    def _merged(self, heads_BQHU: Float[Array, "B Q H U"], is_query: Bool[Array, "#B #Q"]) -> Float[Array, "B Q D"]:
        return einsum("BQHU,HUD->BQD", heads_BQHU, self.output_kernel, self.precision)
