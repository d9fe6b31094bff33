"""Backends of scaled dot-product attention: queries, keys and values in, heads out; the weights are not returned.

Each is an object with the signature of ``AttentionBackend`` and equals ``EinsumAttention``, the reference, to rounding. What a
query that sees nothing gets (padding) is finite and up to the backend.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.batch_axes import is_one_device
from transformer_jax.layers.blockwise_attention import BlockwiseAttention, padded
from transformer_jax.layers.dropout import Drops
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import scaled_dot_product_attention
from transformer_jax.precision import Precision


@runtime_checkable
class AttentionBackend(Protocol):
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1) in every head."""

    def __call__(
        self,
        query: Float[Array, "B H Q K"],
        key: Float[Array, "B H M K"],
        value: Float[Array, "B H M U"],
        mask: SentenceMask,
        *,
        drops: Drops | None,
        precision: Precision,
    ) -> Float[Array, "B H Q U"]:
        """Output of each query; ``drops`` are those of the weights [B, H, Q, M], ``precision`` that of the products."""


@dataclass(frozen=True)
class EinsumAttention:
    """All scores at once: the reference, and the fastest while they are few."""

    def __call__(
        self, query: Array, key: Array, value: Array, mask: SentenceMask, *, drops: Drops | None, precision: Precision
    ) -> Array:
        """See ``AttentionBackend``."""
        return scaled_dot_product_attention(query, key, value, mask.array(), drops=drops, precision=precision)[0]


@dataclass(frozen=True)
class ByLength:
    """One backend up to ``limit`` scores a head, another beyond: from 512 positions on blocks are faster on a CPU too."""

    few: AttentionBackend = field(default_factory=EinsumAttention)
    many: AttentionBackend = field(default_factory=BlockwiseAttention)
    limit: int = 256 * 256

    def __call__(
        self, query: Array, key: Array, value: Array, mask: SentenceMask, *, drops: Drops | None, precision: Precision
    ) -> Array:
        """See ``AttentionBackend``."""
        chosen = self.few if query.shape[2] * key.shape[2] <= self.limit else self.many
        return chosen(query, key, value, mask, drops=drops, precision=precision)


@dataclass(frozen=True)
class CudnnAttention:
    """cuDNN's fused attention, for NVIDIA GPUs; its operands are bfloat16, and it drops nothing.

    With ``one_sentence`` every row is one sentence, padded on the right: causality and the lengths of the keys say all.
    Otherwise the mask goes in as an array, so masks (not scores) take memory with the square of the length.
    """

    one_sentence: bool = False

    def __call__(
        self, query: Array, key: Array, value: Array, mask: SentenceMask, *, drops: Drops | None, precision: Precision
    ) -> Array:
        """See ``AttentionBackend``."""
        query, key, value = (jnp.swapaxes(each, 1, 2).astype(jnp.bfloat16) for each in (query, key, value))
        attend = partial(
            jax.nn.dot_product_attention, query, key, value, implementation="cudnn", scale=query.shape[-1] ** -0.5
        )
        if self.one_sentence:
            # A row of padding sees its first place, so that its weights are finite; every query is computed, padding too.
            lengths = jnp.maximum(jnp.sum(jnp.asarray(mask.key_segments) != 0, axis=1, dtype=jnp.int32), 1)
            heads = attend(
                is_causal=mask.is_causal,
                query_seq_lengths=0 * lengths + query.shape[1],
                key_value_seq_lengths=lengths,
            )
        else:
            heads = attend(mask=mask.array()[:, None])
        return jnp.swapaxes(heads, 1, 2).astype(precision.output)


def on_each_device(attend: Callable[..., Array], mesh: Mesh, heads: P) -> Callable[..., Array]:
    """``attend(query, key, value, query_segments, key_segments)`` by each device on its rows and ``heads``."""
    if is_one_device(mesh):
        return attend
    rows = P(heads[0])
    # A kernel does not say how its outputs vary over the mesh.
    return jax.shard_map(
        attend, mesh=mesh, in_specs=(heads, heads, heads, rows, rows), out_specs=heads, check_vma=False
    )


@dataclass(frozen=True)
class TpuFlashAttention:
    """The splash attention kernel for TPUs that comes with JAX: flash attention that skips blocks of masked scores.

    It drops nothing, and keys are as wide as values. A kernel is not divided by the compiler, so it needs the sharding of rows
    and heads. Each device works on its own.
    """

    mesh: Mesh
    heads: P
    block: int = 512

    def __call__(
        self, query: Array, key: Array, value: Array, mask: SentenceMask, *, drops: Drops | None, precision: Precision
    ) -> Array:
        """See ``AttentionBackend``."""

        def attend(*operands: Array) -> Array:
            return self._on_one_device(*operands, is_causal=mask.is_causal)

        attend = on_each_device(attend, self.mesh, self.heads)
        query = query * query.shape[-1] ** -0.5
        operands = (each.astype(precision.compute) for each in (query, key, value))
        return attend(*operands, mask.query_segments, mask.key_segments).astype(precision.output)

    def _on_one_device(
        self, query: Array, key: Array, value: Array, queries: Array, keys: Array, *, is_causal: bool
    ) -> Array:
        # The kernel's modules ask for the compiler of TPUs, which other platforms need not have.
        from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
        from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

        length, block_q, block_k = query.shape[2], self._block(query.shape[2]), self._block(key.shape[2])
        query, key, value = padded(query, 2, block_q), padded(key, 2, block_k), padded(value, 2, block_k)
        scores = query.shape[2], key.shape[2]
        mask = masks.CausalMask(scores) if is_causal else masks.FullMask(scores)
        # A single pass backward writes a gradient of the queries for each block of keys: counted, less up to two of them.
        is_fused = key.shape[2] <= 2 * block_k
        sizes = kernel.BlockSizes(
            block_q=block_q,
            block_kv=block_k,
            block_kv_compute=block_k,
            block_q_dkv=block_q,
            block_kv_dkv=block_k,
            block_kv_dkv_compute=block_k,
            block_q_dq=None if is_fused else block_q,
            block_kv_dq=None if is_fused else block_k,
            use_fused_bwd_kernel=is_fused,
        )
        attend = kernel.make_splash_mha(
            masks.MultiHeadMask([mask] * query.shape[1]), block_sizes=sizes, head_shards=1, q_seq_shards=1
        )
        segments = kernel.SegmentIds(padded(queries, 1, block_q), padded(keys, 1, block_k))
        heads: Array = jax.vmap(attend)(query, key, value, segments)
        return heads[:, :, :length]

    def _block(self, length: int) -> int:
        """As many positions as a kernel takes at a time: whole lanes of 128, and no more than there are."""
        return min(self.block, -(-length // 128) * 128)
