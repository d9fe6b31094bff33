"""Multi-head attention (Vaswani et al. 2017, section 3.2.2) and its KV cache."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import AnyArray, Array, Bool, Float, Int, PyTree
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.parameter_initialization import Layer, xavier_uniform
from transformer_jax.layers.scaled_dot_product import (
    AttentionBackend,
    AttentionOptions,
    EinsumAttention,
    scaled_dot_product_attention,
)
from transformer_jax.layers.site import Site
from transformer_jax.precision import FLOAT32, Precision, einsum
from transformer_jax.registry.plugins import register


class KVCache(NamedTuple):
    """Projected keys [B, H, K, M] and values [B, H, M, U] of an attention, in its ``compute`` type.

    Keys are stored transposed, as the product of a decoding step reads them. On a CPU, scores of
    keys [B, H, M, K] took three times as long, and of keys [B, M, H, K] thirty times.
    """

    keys: Float[Array, "B H K M"]
    values: Float[Array, "B H M U"]

    def write(self, new: "KVCache", write_index: Int[Array, ""] | int) -> "KVCache":
        """Return this cache with ``new`` in the cache slots from ``write_index`` on."""
        keys = lax.dynamic_update_slice_in_dim(self.keys, new.keys, write_index, axis=3)
        return KVCache(keys, lax.dynamic_update_slice_in_dim(self.values, new.values, write_index, axis=2))


class LayerCache(NamedTuple):
    """The cache of a layer between decoding steps.

    Leaves of ``kv_cache`` [B, ...] are written and never reordered. Leaves of ``per_beam``
    [B, W, ...] follow the beams.
    """

    kv_cache: PyTree
    per_beam: PyTree = ()


class StepMask(NamedTuple):
    """The visible cache slots of a decoding step, and positions of its queries and keys.

    ``write_index`` is the first cache slot that the step writes; ``score_mod`` as in
    ``SentenceMask``.
    """

    write_index: Int[Array, ""] | int
    visible: Bool[Array, "B #W M"]
    query_positions: Int[Array, "B W"]
    key_positions: Int[Array, "B M"]
    score_mod: PyTree = None


@dataclass(frozen=True)
class ByLength:
    """``short`` for up to ``limit`` scores per head, else ``long``, by default blockwise attention.

    Blocks are faster from 512 positions on, also on a CPU.
    """

    short: AttentionBackend = field(default_factory=EinsumAttention)
    long: AttentionBackend | None = None
    limit: int = 256 * 256

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        if q.shape[2] * k.shape[2] <= self.limit:
            return self.short(q, k, v, mask, options)
        if self.long is not None:
            return self.long(q, k, v, mask, options)
        from transformer_jax.layers.blockwise_attention import BlockwiseAttention

        return BlockwiseAttention()(q, k, v, mask, options)


@register("attention", "multi_head")
class MultiHeadAttention(Layer):
    """Concat(head_1, ..., head_H) W^O, head_i = Attention(Q W^Q_i, K W^K_i, V W^V_i), no biases.

    Parameters: ``query`` and ``key`` [D, H, K], ``value`` [D, H, U], ``output`` [H, U, D]. If the
    collection ``intermediates`` is mutable, a call sows ``attention_weights`` [B, H, Q, M], before
    dropout, and computes them without ``backend``.
    """

    num_heads: int
    key_size: int
    value_size: int
    d_model: int
    dropout: Rate = None
    precision: Precision = FLOAT32
    backend: AttentionBackend = ByLength()

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site, **options: Any) -> "MultiHeadAttention":
        """Return the attention at ``site``, from settings of its part and of the model."""
        return cls(**options)

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
        keys, values = self.project_memory(memory)
        query_BHQK = self.project_queries(queries)
        if self.is_mutable_collection("intermediates"):
            return self.attend_dense(query_BHQK, keys, values, mask.array(), train=train)
        dropout = self.weight_dropout.mask(train=train)
        heads_BHQU = self.backend(query_BHQK, keys, values, mask, AttentionOptions(dropout, self.precision))
        return self.project_output(heads_BHQU)

    def empty_cache(self, rows: int, num_slots: int, beams: int) -> LayerCache:
        """Return a cache of zeros with ``num_slots`` cache slots a row."""
        return LayerCache(empty_kv(rows, self.num_heads, num_slots, self.key_size, self.value_size, self.precision))

    def cache_of(self, memory: Float[Array, "B M D"], positions: Int[AnyArray, "B M"]) -> KVCache:
        keys, values = self.project_memory(memory)
        return KVCache(jnp.swapaxes(keys, 2, 3).astype(self.precision.compute), values.astype(self.precision.compute))

    def prefill(self, inputs: Float[Array, "B P D"], mask: SentenceMask, cache: LayerCache) -> LayerCache:
        return cache._replace(kv_cache=cache.kv_cache.write(self.cache_of(inputs, mask.key_positions), 0))

    def attend(self, queries: Float[Array, "B Q D"], cache: KVCache, mask: StepMask) -> Float[Array, "B Q D"]:
        """Attend from ``queries`` to the visible cache slots."""
        query_BHQK = self.project_queries(queries)
        return self.attend_dense(query_BHQK, jnp.swapaxes(cache.keys, 2, 3), cache.values, mask.visible, train=False)

    def step(
        self, inputs: Float[Array, "B W D"], cache: LayerCache, mask: StepMask
    ) -> tuple[Float[Array, "B W D"], LayerCache]:
        """Attend from one more position a beam, and write it into W cache slots.

        The queries of a sentence are its beams. They share its M cache slots, and ``mask`` hides
        those of other beams.
        """
        written = cache.kv_cache.write(self.cache_of(inputs, mask.query_positions), mask.write_index)
        return self.attend(inputs, written, mask), cache._replace(kv_cache=written)

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        keys = project_heads(memory, self.key_kernel, self.precision)
        return keys, project_heads(memory, self.value_kernel, self.precision)

    def project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        return project_heads(queries, self.query_kernel, self.precision)

    def project_output(self, heads_BHQU: Float[Array, "B H Q U"]) -> Float[Array, "B Q D"]:
        """Concatenate the heads and multiply them by W^O."""
        return einsum("BQHU,HUD->BQD", jnp.swapaxes(heads_BHQU, 1, 2), self.output_kernel, self.precision)

    def attend_dense(
        self, query_BHQK: Array, key_BHMK: Array, value_BHMU: Array, mask: Bool[Array, "#B #Q M"], *, train: bool
    ) -> Float[Array, "B Q D"]:
        dropout = self.weight_dropout.mask(train=train)
        heads_BHQU, weights_BHQM = scaled_dot_product_attention(
            query_BHQK, key_BHMK, value_BHMU, mask, dropout=dropout, precision=self.precision
        )
        self.sow("intermediates", "attention_weights", weights_BHQM)
        return self.project_output(heads_BHQU)


def empty_kv(rows: int, heads: int, num_slots: int, key_size: int, value_size: int, precision: Precision) -> KVCache:
    keys = jnp.zeros((rows, heads, key_size, num_slots), precision.compute)
    return KVCache(keys, jnp.zeros((rows, heads, num_slots, value_size), precision.compute))


def project_heads(
    inputs_BLD: Float[Array, "B L D"], kernel_DHK: Float[Array, "D H K"], precision: Precision
) -> Float[Array, "B H L K"]:
    with jax.named_scope("project_heads"):
        # Transposed after the product: inside it, a CPU would transpose the larger operand.
        return jnp.swapaxes(einsum("BLD,DHK->BLHK", inputs_BLD, kernel_DHK, precision), 1, 2)
