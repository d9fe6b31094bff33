"""Backends of scaled dot-product attention for accelerators, long sequences and sharded sequences.

Backends equal ``EinsumAttention`` to rounding. Blockwise attention computes whatever a kernel
cannot take, and the log says so once.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import gcd, prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Literal
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.layers.blockwise_attention import BlockwiseAttention, padded
from transformer_jax.layers.key_ranges import attend_to_ranges, key_ranges
from transformer_jax.layers.masks import SentenceMask, Window, row_indices
from transformer_jax.layers.mesh_axes import ROW_AXES, is_one_device, splits
from transformer_jax.layers.scaled_dot_product import At, AttentionBackend, AttentionOptions, EinsumAttention, ScoreMod
from transformer_jax.private_modules import splash_attention

# Partitions of queries, keys, values and outputs [B, H, L, K].
BY_POSITION = P(ROW_AXES, "tensor", "context")
BY_HEAD = P(ROW_AXES, ("tensor", "context"))
WHOLE_SEQUENCES = P(ROW_AXES, "tensor")
# Scores of a device, over all rows. cuDNN may keep 2 bytes of a score for the gradient of a bias,
# for one layer at a time.
MAX_BIASED_SCORES = 2**30


@cache
def blockwise_instead(kernel: str, reason: str) -> BlockwiseAttention:
    """Return blockwise attention, and log the ``reason`` once a process."""
    logging.getLogger("transformer_jax").info("attention: blockwise instead of %s, which takes no %s", kernel, reason)
    return BlockwiseAttention()


@dataclass(frozen=True)
class CudnnAttention:
    """cuDNN's fused attention for NVIDIA GPUs: bfloat16, no dropout.

    Takes shared key heads. With ``one_sentence`` a row is one sentence padded on the right,
    described by causality, lengths, and a window to the left or the bias that ``score_mod`` adds.
    Otherwise, for packed rows on a GPU before Hopper, the mask is an array, whose memory grows with
    the square of the length. Blockwise attention computes what this cannot: a ``score_mod`` that
    does not add a bias, and with ``one_sentence`` a ``mask_mod`` that is no window.
    """

    one_sentence: bool = False

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        bias = added_bias(options.score_mod, q, k.shape[2]) if options.score_mod and self.one_sentence else None
        scores = (*q.shape[:3], k.shape[2])
        if obstacle := _obstacle_of_kernels(k, v, options) or self._obstacle(mask, options.score_mod, bias, scores):
            return blockwise_instead("cudnn", obstacle)(q, k, v, mask, options)
        q, k, v = (jnp.swapaxes(array, 1, 2).astype(jnp.bfloat16) for array in (q, k, v))
        attend = partial(jax.nn.dot_product_attention, q, k, v, implementation="cudnn", scale=q.shape[-1] ** -0.5)
        if self.one_sentence:
            # A row of padding sees its first position, so that its weights are finite.
            lengths = _lengths(mask.key_segments)
            query_lengths, window = 0 * lengths + q.shape[1], None
            if mask.mask_mod is not None:
                # A padded query may be too far from the last key to see any: compute tokens only.
                query_lengths, window = _lengths(mask.query_segments), (mask.window.left, 0)
            heads = attend(
                is_causal=mask.window.right == 0,
                query_seq_lengths=query_lengths,
                key_value_seq_lengths=lengths,
                local_window_size=window,
                bias=bias,
            )
        else:
            heads = attend(mask=mask.array()[:, None])
        return jnp.swapaxes(heads, 1, 2).astype(options.precision.output)

    def _obstacle(
        self, mask: SentenceMask, score_mod: ScoreMod | None, bias: Array | None, scores: tuple[int, ...]
    ) -> str | None:
        """Return the reason that cuDNN cannot run on scores of this shape [B, H, Q, M], or None."""
        if score_mod is not None and bias is None:
            return "change of scores (score_mod) except a bias that is the same in all rows of one sentence"
        if bias is not None and mask.mask_mod is not None:
            return "window with a bias"
        if bias is not None and prod(scores) > MAX_BIASED_SCORES * jax.device_count():
            return f"bias on more than {MAX_BIASED_SCORES:,} scores a device, which its gradient may keep"
        if (bias is not None or not self.one_sentence) and (scores[2] % 2 or scores[3] % 2):
            return "bias or mask of an odd length"
        is_left_window = isinstance(mask.mask_mod, Window) and mask.window.left is not None and mask.window.right == 0
        if self.one_sentence and mask.mask_mod is not None and not is_left_window:
            return "window after the query or other mask of positions"
        return None


@dataclass(frozen=True)
class PackedCudnnAttention:
    """cuDNN's fused attention from each query of a packed row to a range of keys, from Hopper on.

    In bfloat16 without dropout. Takes windows and shared key heads. Devices run the kernel on their
    local rows and heads. Blockwise attention computes changes of scores and other masks.
    """

    mesh: Mesh
    heads: P

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        if obstacle := _obstacle_of_rows(mask, options, k, v):
            return blockwise_instead("cudnn", obstacle)(q, k, v, mask, options)

        def attend(q: Array, k: Array, v: Array, queries: Array, keys: Array) -> Array:
            ranges = key_ranges(SentenceMask(queries, keys, mask.is_causal, mask_mod=mask.mask_mod))
            q, k, v = (jnp.swapaxes(array, 1, 2).astype(jnp.bfloat16) for array in (q, k, v))
            return jnp.swapaxes(attend_to_ranges(q, k, v, *ranges), 1, 2)

        attend_on_each_device = on_each_device(attend, self.mesh, self.heads)
        return attend_on_each_device(q, k, v, mask.query_segments, mask.key_segments).astype(options.precision.output)


def added_bias(score_mod: ScoreMod, q: Float[Array, "B H Q K"], keys: int) -> Float[Array, "1 H Q M"] | None:
    """Return the bfloat16 bias [1, H, Q, M] that ``score_mod`` adds; None for other changes.

    It may only add terms that read neither scores nor queries. Positions are indices in the row.
    """
    scores, positions = jnp.zeros((1, *q.shape[1:3], keys)), row_indices(q.shape[2], keys)

    def changed(scores: Array, query: Array) -> Array:
        return score_mod(scores, At(*positions, query))

    program = jax.make_jaxpr(changed)(scores, q[:1]).jaxpr
    is_sum = [_sum_with(program, *program.invars[:2])] == program.outvars
    return changed(scores, q[:1]).astype(jnp.bfloat16) if is_sum else None


def _sum_with(program: Any, scores: Any, *hidden: Any) -> Any:
    """Return the variable of ``scores`` plus all terms.

    None if an equation reads a variable of ``hidden``, or reads a partial sum otherwise.
    """
    summed, seen = scores, {scores, *hidden}
    for equation in program.eqns:
        read = [variable for variable in equation.invars if not isinstance(variable, Literal) and variable in seen]
        if not read:
            continue
        if read != [summed]:
            return None
        if equation.primitive.name == "jit":
            inner = equation.params["jaxpr"].jaxpr
            end = _sum_with(inner, inner.invars[equation.invars.index(summed)])
            if end not in inner.outvars:
                return None
            summed = equation.outvars[inner.outvars.index(end)]
        elif equation.primitive.name == "add" or (equation.primitive.name == "sub" and equation.invars[0] is summed):
            summed = equation.outvars[0]
        else:
            return None
        seen.add(summed)
    return summed


def _lengths(segments: AnyArray) -> Int[Array, "B"]:
    """Return the number of tokens of each row, at least 1."""
    return jnp.maximum(jnp.sum(jnp.asarray(segments) != 0, axis=1, dtype=jnp.int32), 1)


def on_each_device(attend: Callable[..., Array], mesh: Mesh, heads: P) -> Callable[..., Array]:
    """Return ``attend``, run by each device on its local rows and ``heads``.

    Its operands: q, k, v, segments of queries and keys, and maybe an array [H].
    """
    if is_one_device(mesh):
        return attend
    specs = heads, heads, heads, P(heads[0]), P(heads[0]), P(heads[1])

    def sharded(*operands: Array) -> Array:
        # A kernel does not say how its outputs vary over the mesh.
        split = jax.shard_map(attend, mesh=mesh, in_specs=specs[: len(operands)], out_specs=heads, check_vma=False)
        return split(*operands)

    return sharded


@dataclass(frozen=True)
class TpuFlashAttention:
    """JAX's splash attention for TPUs, which skips masked blocks: no dropout, K = U.

    Takes windows, shared key heads and a learned term of the denominator. The compiler cannot
    partition a kernel, so devices run it on their local rows and heads. Blockwise attention
    computes changes of scores and other masks.
    """

    mesh: Mesh
    heads: P
    block: int = 512

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        sinks, precision, others = [], options.precision, options
        if options.denominator is not None and options.denominator.terms is None:
            sinks, others = [options.denominator.log_rest], options._replace(denominator=None)
        if obstacle := _obstacle_of_rows(mask, others, k, v):
            return blockwise_instead("tpu_flash", obstacle)(q, k, v, mask, options)
        attend = on_each_device(partial(self._on_one_device, window=mask.window), self.mesh, self.heads)
        q = q * q.shape[-1] ** -0.5
        operands = (array.astype(precision.compute) for array in (q, k, v))
        return attend(*operands, mask.query_segments, mask.key_segments, *sinks).astype(precision.output)

    def _on_one_device(
        self, q: Array, k: Array, v: Array, queries: Array, keys: Array, *sinks: Array, window: Window
    ) -> Array:
        # The kernel's modules need the TPU compiler, which other platforms may lack.
        kernel, masks = splash_attention()
        length, block_q, block_k = q.shape[2], self._block(q.shape[2]), self._block(k.shape[2])
        q, k, v = padded(q, 2, block_q), padded(k, 2, block_k), padded(v, 2, block_k)
        scores = q.shape[2], k.shape[2]
        mask = masks.FullMask(scores)
        if window == Window(None, 0):
            mask = masks.CausalMask(scores)
        elif window != Window(None, None):
            mask = masks.LocalMask(scores, (window.left, window.right), offset=0)
        # The fused backward kernel writes a gradient of the queries for every block of keys, which
        # is fewer bytes up to two blocks.
        is_fused = k.shape[2] <= 2 * block_k
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
            masks.MultiHeadMask([mask] * q.shape[1]), block_sizes=sizes, head_shards=1, q_seq_shards=1
        )
        segments = kernel.SegmentIds(padded(queries, 1, block_q), padded(keys, 1, block_k))
        heads: Array = jax.vmap(lambda *row: attend(*row, *sinks))(q, k, v, segments)
        return heads[:, :, :length]

    def _block(self, length: int) -> int:
        """Return the positions of a block, in whole lanes of 128."""
        return min(self.block, -(-length // 128) * 128)


@dataclass(frozen=True)
class RowBlockAttention:
    """The reference on blocks of rows of at most ``scores`` scores, recomputed going backward.

    A TPU keeps the scores of a block in its vector memory; those of a whole batch would pass
    through main memory several times. A dropout mask covers the whole batch, so with dropout there
    is one block. Takes windows and shared key heads. Blockwise attention computes changes of
    scores, whose arrays are not split over devices, and other masks.
    """

    mesh: Mesh
    heads: P
    scores: int = 2**22

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        if options.dropout is not None:
            return EinsumAttention()(q, k, v, mask, options)
        # Keys and values may have different sizes, but not numbers of heads.
        if obstacle := _obstacle_of_rows(mask, options, k[..., :0], v[..., :0]):
            return blockwise_instead("row blocks", obstacle)(q, k, v, mask, options)

        def attend(operands: tuple[Array, ...]) -> Array:
            q, k, v, queries, keys = operands
            block_mask = SentenceMask(queries, keys, mask.is_causal, mask_mod=mask.mask_mod)
            return EinsumAttention()(q, k, v, block_mask, options)

        def attend_in_blocks(*operands: Array) -> Array:
            rows, num_heads, num_queries = query_shape = operands[0].shape[:3]
            max_rows = max(self.scores // (num_heads * num_queries * operands[1].shape[2]), 1)
            if rows <= max_rows:
                return attend(operands)
            blocks = -(-rows // max_rows)
            size = -(-rows // blocks)
            split = tuple(padded(array, 0, size).reshape(-1, size, *array.shape[1:]) for array in operands)
            heads = lax.map(jax.checkpoint(attend), split)
            return heads.reshape(-1, *query_shape[1:], heads.shape[-1])[:rows]

        return on_each_device(attend_in_blocks, self.mesh, self.heads)(q, k, v, mask.query_segments, mask.key_segments)


def _obstacle_of_kernels(k: Array, v: Array, options: AttentionOptions) -> str | None:
    if options.denominator is not None:
        return "change of the denominator (denominator_mod)"
    return None if k.shape == v.shape else "values of another shape than the keys"


def _obstacle_of_rows(mask: SentenceMask, options: AttentionOptions, k: Array, v: Array) -> str | None:
    """Return the reason that devices cannot run on only their rows and heads, or None."""
    if options.score_mod is not None:
        return "change of scores (score_mod)"
    if obstacle := _obstacle_of_kernels(k, v, options):
        return obstacle
    return None if mask.mask_mod is None or isinstance(mask.mask_mod, Window) else "mask of positions"


@dataclass(frozen=True)
class AllToAllAttention:
    """Context parallelism: devices attend with some heads over whole sequences (Ulysses).

    Jacobs et al. 2023, section 3.1. All-to-alls over ``context`` and ``tensor`` exchange the split
    of queries, keys and values [B, H, L, K] by positions for one by heads; ``backend`` runs;
    another one exchanges the output back. Key heads are repeated until they divide over these
    devices.
    """

    backend: AttentionBackend
    mesh: Mesh

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        k, v = (self._repeated(array) for array in (k, v))
        q, k, v = (self._by_head(array) for array in (q, k, v))
        heads = self.backend(q, k, v, mask, options)
        if splits(heads.shape[2], self.mesh):
            return self._exchanged(heads, (2, 1), (BY_HEAD, BY_POSITION))
        return self._constrained(heads, WHOLE_SEQUENCES)

    def _repeated(self, array: Array) -> Array:
        """Repeat key heads until they divide over the devices, as the query heads do."""
        devices = self.mesh.shape["context"] * self.mesh.shape["tensor"]
        times = devices // gcd(array.shape[1], devices)
        return jnp.repeat(array, times, axis=1) if times > 1 else array

    def _by_head(self, array: Array) -> Array:
        if splits(array.shape[2], self.mesh):
            return self._exchanged(array, (1, 2), (BY_POSITION, BY_HEAD))
        return self._constrained(array, BY_HEAD)

    def _exchanged(self, array: Array, axes: tuple[int, int], specs: tuple[P, P]) -> Array:
        """Split the first of ``axes`` instead of the second, without gathering both."""
        exchange = partial(lax.all_to_all, axis_name="context", split_axis=axes[0], concat_axis=axes[1], tiled=True)
        return jax.shard_map(exchange, mesh=self.mesh, in_specs=specs[0], out_specs=specs[1])(array)

    def _constrained(self, array: Array, spec: P) -> Array:
        return lax.with_sharding_constraint(array, NamedSharding(self.mesh, spec))
