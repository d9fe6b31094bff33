"""Multi-head attention (Vaswani et al. 2017, section 3.2.2) and its KV cache."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, Int
from transformer_jax.layers.attention_backends import ByLength
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import AttentionBackend, scaled_dot_product_attention
from transformer_jax.precision import FLOAT32, Precision, einsum


class KVCache(NamedTuple):
    """Projected keys [B, H, K, M] and values [B, H, M, U] of one attention, in the ``compute`` type of its products.

    Keys are stored transposed, as the product of a decoding step reads them: on a CPU scores of keys [B, H, M, K] took three
    times as long, of keys [B, M, H, K] thirty times.
    """

    keys: Float[Array, "B H K M"]
    values: Float[Array, "B H M U"]

    def write(self, new: "KVCache", write_index: Int[Array, ""] | int) -> "KVCache":
        """This cache with ``new`` in the cache slots from ``write_index`` on."""
        keys = lax.dynamic_update_slice_in_dim(self.keys, new.keys, write_index, axis=3)
        return KVCache(keys, lax.dynamic_update_slice_in_dim(self.values, new.values, write_index, axis=2))


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_H) W^O, head_i = Attention(Q W^Q_i, K W^K_i, V W^V_i); no biases, as in the paper.

    Parameters: ``query`` and ``key`` [D, H, K], ``value`` [D, H, U], ``output`` [H, U, D]. If the collection ``intermediates``
    is mutable, every call sows ``attention_weights`` [B, H, Q, M], before dropout, and computes them without ``backend``.
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
        heads_out = xavier_uniform((0, 1), 2)
        self.output_kernel = self.param("output", heads_out, (self.num_heads, self.value_size, self.d_model))
        self.weight_dropout = Dropout(self.dropout)

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` to ``memory``."""
        keys, values = self.project_memory(memory)
        query_BHQK = self.project_queries(queries)
        if self.is_mutable_collection("intermediates"):
            return self._attend_in_full(query_BHQK, keys, values, mask.array(), train=train)
        dropout = self.weight_dropout.mask(train=train)
        heads_BHQU = self.backend(query_BHQK, keys, values, mask, dropout=dropout, precision=self.precision)
        return self.merge_heads(heads_BHQU)

    def init_cache(self, rows: int, num_slots: int) -> KVCache:
        """An empty cache of ``num_slots`` cache slots a row."""
        keys = jnp.zeros((rows, self.num_heads, self.key_size, num_slots), self.precision.compute)
        return KVCache(keys, jnp.zeros((rows, self.num_heads, num_slots, self.value_size), self.precision.compute))

    def cache_of(self, memory: Float[Array, "B M D"]) -> KVCache:
        """The cache of a whole ``memory``, such as an encoded source or a prompt."""
        keys, values = self.project_memory(memory)
        return KVCache(jnp.swapaxes(keys, 2, 3).astype(self.precision.compute), values.astype(self.precision.compute))

    def attend(
        self, queries: Float[Array, "B Q D"], cache: KVCache, mask: Bool[Array, "#B #Q M"]
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` to the cache slots that ``mask`` shows."""
        query_BHQK = self.project_queries(queries)
        return self._attend_in_full(query_BHQK, jnp.swapaxes(cache.keys, 2, 3), cache.values, mask, train=False)

    def step(
        self,
        inputs: Float[Array, "B W D"],
        cache: KVCache,
        write_index: Int[Array, ""],
        visible: Bool[Array, "B W M"],
    ) -> tuple[Float[Array, "B W D"], KVCache]:
        """Self-attention of one more position in each beam, written into the W cache slots from ``write_index`` on.

        The beams of a sentence are queries to its M cache slots; ``visible`` marks the slots of each beam's prefix.
        """
        cache = cache.write(self.cache_of(inputs), write_index)
        return self.attend(inputs, cache, visible), cache

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        keys = project_heads(memory, self.key_kernel, self.precision)
        return keys, project_heads(memory, self.value_kernel, self.precision)

    def project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        return project_heads(queries, self.query_kernel, self.precision)

    def merge_heads(self, heads_BHQU: Float[Array, "B H Q U"]) -> Float[Array, "B Q D"]:
        """The heads side by side, times W^O."""
        return einsum("BQHU,HUD->BQD", jnp.swapaxes(heads_BHQU, 1, 2), self.output_kernel, self.precision)

    def _attend_in_full(
        self, query_BHQK: Array, key_BHMK: Array, value_BHMU: Array, mask: Bool[Array, "#B #Q M"], *, train: bool
    ) -> Float[Array, "B Q D"]:
        dropout = self.weight_dropout.mask(train=train)
        heads_BHQU, weights_BHQM = scaled_dot_product_attention(
            query_BHQK, key_BHMK, value_BHMU, mask, dropout=dropout, precision=self.precision
        )
        self.sow("intermediates", "attention_weights", weights_BHQM)
        return self.merge_heads(heads_BHQU)


def project_heads(
    inputs_BLD: Float[Array, "B L D"], kernel_DHK: Float[Array, "D H K"], precision: Precision
) -> Float[Array, "B H L K"]:
    """``inputs_BLD`` projected into every head."""
    with jax.named_scope("project_heads"):
        # Transposed after the product, not by it: on a CPU the product would transpose its larger operand.
        return jnp.swapaxes(einsum("BLD,DHK->BLHK", inputs_BLD, kernel_DHK, precision), 1, 2)
