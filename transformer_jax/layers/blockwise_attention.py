"""Blockwise attention: memory linear in the length, not quadratic.

The softmax over blocks of keys keeps a running maximum and sum (Milakov and Gimelshein 2018; Rabe
and Staats 2021, section 2). The backward pass recomputes a block of weights from the logarithm
of that sum (Dao et al. 2022, appendix B). Plain JAX: it runs on every platform and under any
sharding of rows and heads, and takes every mask and change of scores.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, PyTree
from transformer_jax.layers.dropout import DropoutMask
from transformer_jax.layers.masks import MaskMod, SentenceMask, Window, segment_mask, visible_to_mod
from transformer_jax.layers.scaled_dot_product import (
    MASKED_SCORE,
    At,
    AttentionOptions,
    Denominator,
    ScoreMod,
    by_key_head,
    numerators_and_terms,
    scores_of,
    weighted_values,
)
from transformer_jax.precision import Precision, einsum


@dataclass(frozen=True)
class BlockwiseAttention:
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1), a block of scores at a time.

    Skips blocks that causality or a ``Window`` hides.
    """

    query_block: int = 512
    key_block: int = 512

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        """Return the heads, as ``AttentionBackend`` does, or zeros if a query sees nothing."""
        dropout, precision, score_mod, denominator = options
        queries, keys = q.shape[2], k.shape[2]
        blocks = min(self.query_block, queries), min(self.key_block, keys)
        shape = Blocks(*blocks, queries, keys, mask.window, mask.is_causal, mask.mask_mod, precision.float32_output)
        inputs = Inputs(
            query=padded(q * q.shape[-1] ** -0.5, 2, shape.query_block),
            key=padded(k, 2, shape.key_block),
            value=padded(v, 2, shape.key_block),
            # Segment 0 is padding, which sees nothing and is not seen.
            query_segments=padded(jnp.asarray(mask.query_segments), 1, shape.query_block),
            key_segments=padded(jnp.asarray(mask.key_segments), 1, shape.key_block),
            dropout=dropout,
            query_positions=padded(jnp.asarray(mask.positions[0]), 1, shape.query_block),
            key_positions=padded(jnp.asarray(mask.positions[1]), 1, shape.key_block),
            score_mod=score_mod,
            denominator=denominator,
        )
        return _attention(inputs, shape)[:, :, :queries].astype(precision.output)


class Blocks(NamedTuple):
    """Division of the scores into blocks; ``queries`` and ``keys`` before padding."""

    query_block: int
    key_block: int
    queries: int
    keys: int
    window: Window
    is_causal: bool
    mask_mod: MaskMod | None
    precision: Precision

    def key_blocks_of(self, row: Array, num_blocks: int) -> tuple[Array | int, Array | int]:
        """Return the key blocks that query block ``row`` sees: the first, and the end."""
        start, end = row * self.query_block, (row + 1) * self.query_block
        return _blocks_within(start, end, self.window.left, self.window.right, self.key_block, num_blocks)

    def query_blocks_of(self, column: Array, num_blocks: int) -> tuple[Array | int, Array | int]:
        """Return the query blocks that see key block ``column``: the first, and the end."""
        start, end = column * self.key_block, (column + 1) * self.key_block
        return _blocks_within(start, end, self.window.right, self.window.left, self.query_block, num_blocks)


def _blocks_within(
    start: Array, end: Array, before: int | None, after: int | None, size: int, num_blocks: int
) -> tuple[Array | int, Array | int]:
    """Return the first and the end of the blocks that overlap [start - before, end + after)."""
    first = 0 if before is None else jnp.maximum(start - before, 0) // size
    return first, num_blocks if after is None else jnp.minimum(-(-(end + after) // size), num_blocks)


class Inputs(NamedTuple):
    """Scaled queries, keys, values in whole blocks; segments and positions [B, Q], [B, M]."""

    query: Array
    key: Array
    value: Array
    query_segments: Array
    key_segments: Array
    dropout: DropoutMask | None
    query_positions: Array
    key_positions: Array
    score_mod: ScoreMod | None
    denominator: Denominator | None


class _Running(NamedTuple):
    """Running maximum of the scores, denominator relative to it, and sum of weighted values."""

    highest: Array
    total: Array
    mixed: Array


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _attention(inputs: Inputs, shape: Blocks) -> Array:
    return _forward(inputs, shape)[0]


def _forward(inputs: Inputs, shape: Blocks) -> tuple[Array, tuple[Inputs, Array, Array]]:
    """Return the output and, for the backward pass, the logarithms of denominators."""
    num_rows = inputs.query.shape[2] // shape.query_block
    num_columns = inputs.key.shape[2] // shape.key_block

    def one_row(_: None, row: Array) -> tuple[None, tuple[Array, Array]]:
        query = _block(inputs.query, row, shape.query_block)

        def add(column: Array, so_far: _Running) -> _Running:
            key, value = (_block(array, column, shape.key_block) for array in (inputs.key, inputs.value))
            scores = scores_of(query, key, shape.precision)
            if inputs.score_mod is not None:
                scores = _modified(scores, query, inputs.score_mod, _positions(row, column, inputs, shape))
            scores, visible = _masked(scores, row, column, inputs, shape)
            highest = jnp.maximum(so_far.highest, scores.max(-1))
            weights, terms = numerators_and_terms(inputs.denominator, scores, highest[..., None], visible)
            shrink = jnp.exp(so_far.highest - highest)
            dropped = _drop(weights, row, column, inputs, shape)
            mixed = weighted_values(dropped, value, shape.precision)
            return _Running(highest, so_far.total * shrink + terms.sum(-1), so_far.mixed * shrink[..., None] + mixed)

        zero = jnp.zeros(query.shape[:-1], jnp.float32)
        nothing = _Running(zero + MASKED_SCORE, zero, jnp.zeros((*zero.shape, inputs.value.shape[-1]), jnp.float32))
        if inputs.denominator is not None:
            nothing = nothing._replace(highest=zero + inputs.denominator.log_rest[None, :, None], total=zero + 1.0)
        running = lax.fori_loop(*shape.key_blocks_of(row, num_columns), add, nothing)
        total = jnp.where(running.total > 0, running.total, 1.0)
        return None, (running.mixed / total[..., None], running.highest + jnp.log(total))

    _, (outputs, log_totals) = lax.scan(one_row, None, jnp.arange(num_rows))
    output, log_total = _joined(outputs), _joined(log_totals)
    return output, (inputs, output, log_total)


def _backward(shape: Blocks, saved: tuple[Inputs, Array, Array], cotangent: Array) -> tuple[Inputs]:
    inputs, output, log_total = saved
    num_rows = inputs.query.shape[2] // shape.query_block
    num_columns = inputs.key.shape[2] // shape.key_block
    # The softmax's gradient subtracts the mean of dP under P, which is dO . O, with dropout too.
    mean = jnp.sum(cotangent * output, axis=-1)

    def one_column(carry: tuple[Array, PyTree], column: Array) -> tuple[tuple[Array, PyTree], tuple[Array, Array]]:
        key, value = (_block(array, column, shape.key_block) for array in (inputs.key, inputs.value))

        def add(row: Array, so_far: tuple[Array, PyTree, Array, Array]) -> tuple[Array, PyTree, Array, Array]:
            to_query, to_arrays, to_key, to_value = so_far
            query, arriving, log_row, mean_row = (
                _block(array, row, shape.query_block) for array in (inputs.query, cotangent, log_total, mean)
            )
            scores = scores_of(query, key, shape.precision)
            if inputs.score_mod is not None:
                modified = partial(_modified, positions=_positions(row, column, inputs, shape))
                scores, gradients_of = jax.vjp(modified, scores, query, inputs.score_mod)
            scores, visible = _masked(scores, row, column, inputs, shape)
            normalized = partial(numerators_and_terms, shift=log_row[..., None], visible=visible)
            if inputs.denominator is None:
                weights, _ = normalized(None, scores)
            else:
                (weights, _), gradients_of_terms = jax.vjp(normalized, inputs.denominator, scores)
            dropped = _drop(weights, row, column, inputs, shape)
            by_value = partial(by_key_head, key_heads=value.shape[1])
            to_value += einsum("BHQM,BHQU->BHMU", by_value(dropped), by_value(arriving), shape.precision)
            to_dropped = scores_of(arriving, value, shape.precision)
            to_weights = _drop(to_dropped, row, column, inputs, shape)
            to_score_mod = to_denominator = None
            if inputs.denominator is None:
                to_scores = weights * (to_weights - mean_row[..., None])
            else:
                to_terms = jnp.broadcast_to(-mean_row[..., None], weights.shape)
                to_denominator, to_scores = gradients_of_terms((to_weights, to_terms))
            if inputs.score_mod is not None:
                to_scores, to_query_of_mod, to_score_mod = gradients_of(to_scores)
            to_arrays = jax.tree.map(
                lambda total, one: total if _is_constant(one) else total + one,
                to_arrays,
                (to_score_mod, to_denominator),
            )
            by_key = partial(by_key_head, key_heads=key.shape[1])
            to_key += einsum("BHQM,BHQK->BHMK", by_key(to_scores), by_key(query), shape.precision)
            to_row = weighted_values(to_scores, key, shape.precision)
            if inputs.score_mod is not None:
                to_row += to_query_of_mod
            start = row * shape.query_block
            to_row += lax.dynamic_slice_in_dim(to_query, start, shape.query_block, axis=2)
            to_query = lax.dynamic_update_slice_in_dim(to_query, to_row, start, axis=2)
            return to_query, to_arrays, to_key, to_value

        zero = *carry, jnp.zeros(key.shape, jnp.float32), jnp.zeros(value.shape, jnp.float32)
        to_query, to_arrays, to_key, to_value = lax.fori_loop(*shape.query_blocks_of(column, num_rows), add, zero)
        return (to_query, to_arrays), (to_key, to_value)

    arrays = inputs.score_mod, inputs.denominator
    to_arrays = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), arrays)
    start = jnp.zeros(inputs.query.shape, jnp.float32), to_arrays
    (to_query, to_arrays), (to_keys, to_values) = lax.scan(one_column, start, jnp.arange(num_columns))
    dtype = inputs.query.dtype
    to_query, to_key, to_value = (array.astype(dtype) for array in (to_query, _joined(to_keys), _joined(to_values)))
    to_score_mod, to_denominator = jax.tree.map(
        lambda total, leaf: None if _is_constant(leaf) else total.astype(leaf.dtype), to_arrays, arrays
    )
    if inputs.denominator is not None:
        share = jnp.exp(inputs.denominator.log_rest[None, :, None] - log_total)
        to_denominator = to_denominator._replace(log_rest=to_denominator.log_rest - jnp.sum(mean * share, axis=(0, 2)))
    # Segments and positions are integers, and dropout has none.
    none: PyTree = None
    return (Inputs(to_query, to_key, to_value, none, none, none, none, none, to_score_mod, to_denominator),)


_attention.defvjp(_forward, _backward)


def _masked(scores: Array, row: Array, column: Array, inputs: Inputs, shape: Blocks) -> tuple[Array, Array]:
    """Return the scores of a block, ``MASKED_SCORE`` if hidden, and the boolean mask."""
    visible = segment_mask(
        _block(inputs.query_segments, row, shape.query_block, axis=1),
        _block(inputs.key_segments, column, shape.key_block, axis=1),
    )
    query_indices = row * shape.query_block + jnp.arange(shape.query_block)
    key_indices = column * shape.key_block + jnp.arange(shape.key_block)
    if shape.is_causal:
        visible &= (key_indices[None, :] <= query_indices[:, None])[None]
    if shape.mask_mod is not None:
        positions = _positions(row, column, inputs, shape)
        visible &= visible_to_mod(shape.mask_mod, (query_indices[None], key_indices[None]), positions)
    visible = jnp.broadcast_to(visible[:, None], scores.shape)
    return jnp.where(visible, scores, MASKED_SCORE), visible


def _positions(row: Array, column: Array, inputs: Inputs, shape: Blocks) -> tuple[Array, Array]:
    """Return positions [B, query_block] and [B, key_block]; [1, ...] if they are indices."""
    query = _block(inputs.query_positions, row, shape.query_block, axis=1)
    return query, _block(inputs.key_positions, column, shape.key_block, axis=1)


def _modified(scores: Array, query: Array, score_mod: ScoreMod, positions: tuple[Array, Array]) -> Array:
    return score_mod(scores, At(*positions, query)).astype(jnp.float32)


def _is_constant(leaf: Array) -> bool:
    """Return whether an array has no gradient, such as integers."""
    return not jnp.issubdtype(leaf.dtype, jnp.inexact)


def _drop(weights: Array, row: Array, column: Array, inputs: Inputs, shape: Blocks) -> Array:
    """Drop the weights of one block as in the whole array."""
    if inputs.dropout is None:
        return weights
    start = 0, 0, row * shape.query_block, column * shape.key_block
    return inputs.dropout.block(weights, start, (*inputs.query.shape[:2], shape.queries, shape.keys))


def _block(array: Array, index: Array, size: int, axis: int = 2) -> Array:
    return lax.dynamic_slice_in_dim(array, index * size, size, axis)


def _joined(blocks: Array) -> Array:
    """Reshape [blocks, B, H, size, ...] to [B, H, blocks * size, ...]."""
    blocks = jnp.moveaxis(blocks, 0, 2)
    return blocks.reshape(*blocks.shape[:2], -1, *blocks.shape[4:])


def padded(array: Array, axis: int, multiple: int) -> Array:
    """Pad the end of ``axis`` with zeros, up to a multiple of ``multiple``."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = 0, -array.shape[axis] % multiple
    return jnp.pad(array, widths)
