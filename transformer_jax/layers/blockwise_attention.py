"""Blockwise attention: memory linear in the length, not quadratic.

The softmax over blocks of keys keeps a running maximum and sum (Milakov and Gimelshein 2018; Rabe and Staats 2021, section 2).
The backward pass recomputes each block of weights from the logarithm of that sum (Dao et al. 2022, appendix B). Plain JAX: it
runs on every platform and under any sharding of rows and heads.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.dropout import DropoutMask
from transformer_jax.layers.masks import SentenceMask, segment_mask
from transformer_jax.layers.scaled_dot_product import MASKED_SCORE
from transformer_jax.precision import Precision, einsum


@dataclass(frozen=True)
class BlockwiseAttention:
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1), ``query_block`` by ``key_block`` scores at a time."""

    query_block: int = 512
    key_block: int = 512

    def __call__(
        self,
        q: Float[Array, "B H Q K"],
        k: Float[Array, "B H M K"],
        v: Float[Array, "B H M U"],
        mask: SentenceMask,
        *,
        dropout: DropoutMask | None,
        precision: Precision,
    ) -> Float[Array, "B H Q U"]:
        """See ``AttentionBackend``; zeros where a query sees nothing."""
        queries, keys = q.shape[2], k.shape[2]
        blocks = min(self.query_block, queries), min(self.key_block, keys)
        shape = Blocks(*blocks, queries, keys, mask.is_causal, precision.wide)
        inputs = Inputs(
            padded(q * q.shape[-1] ** -0.5, 2, shape.query_block),
            padded(k, 2, shape.key_block),
            padded(v, 2, shape.key_block),
            # Segment 0 is padding, which sees nothing and is not seen.
            padded(jnp.asarray(mask.query_segments), 1, shape.query_block),
            padded(jnp.asarray(mask.key_segments), 1, shape.key_block),
            dropout,
        )
        return _attention(inputs, shape)[:, :, :queries].astype(precision.output)


class Blocks(NamedTuple):
    """Division of the scores into blocks, and the number of queries and keys before padding to whole blocks."""

    query_block: int
    key_block: int
    queries: int
    keys: int
    is_causal: bool
    precision: Precision

    def key_blocks_of(self, row: Array, num_blocks: int) -> Array | int:
        """Number of key blocks that query block ``row`` sees."""
        if not self.is_causal:
            return num_blocks
        return jnp.minimum(-((row + 1) * -self.query_block // self.key_block), num_blocks)

    def first_query_block(self, column: Array) -> Array | int:
        """The first query block that sees key block ``column``."""
        return column * self.key_block // self.query_block if self.is_causal else 0


class Inputs(NamedTuple):
    """Scaled queries, keys and values in whole blocks; segments [B, Q] and [B, M]; the dropout mask of the weights."""

    query: Array
    key: Array
    value: Array
    query_segments: Array
    key_segments: Array
    dropout: DropoutMask | None


WITHOUT_GRADIENT: dict = {"query_segments": None, "key_segments": None, "dropout": None}


class _Running(NamedTuple):
    """Running maximum of the scores, sum of exponentials relative to it, and sum of the values weighted with them."""

    highest: Array
    total: Array
    mixed: Array


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _attention(inputs: Inputs, shape: Blocks) -> Array:
    return _forward(inputs, shape)[0]


def _forward(inputs: Inputs, shape: Blocks) -> tuple[Array, tuple[Inputs, Array, Array]]:
    """The output and, for the backward pass, the logarithm of each query's sum of exponentials."""
    num_rows = inputs.query.shape[2] // shape.query_block
    num_columns = inputs.key.shape[2] // shape.key_block

    def one_row(_: None, row: Array) -> tuple[None, tuple[Array, Array]]:
        query = _block(inputs.query, row, shape.query_block)

        def add(column: Array, so_far: _Running) -> _Running:
            key, value = (_block(each, column, shape.key_block) for each in (inputs.key, inputs.value))
            scores, visible = _scores(query, key, row, column, inputs, shape)
            highest = jnp.maximum(so_far.highest, scores.max(-1))
            weights = jnp.where(visible, jnp.exp(scores - highest[..., None]), 0.0)
            shrink = jnp.exp(so_far.highest - highest)
            dropped = _drop(weights, row, column, inputs, shape)
            mixed = einsum("BHQM,BHMU->BHQU", dropped, value, shape.precision)
            return _Running(highest, so_far.total * shrink + weights.sum(-1), so_far.mixed * shrink[..., None] + mixed)

        zero = jnp.zeros(query.shape[:-1], jnp.float32)
        nothing = _Running(zero + MASKED_SCORE, zero, jnp.zeros((*zero.shape, inputs.value.shape[-1]), jnp.float32))
        found = lax.fori_loop(0, shape.key_blocks_of(row, num_columns), add, nothing)
        total = jnp.where(found.total > 0, found.total, 1.0)
        return None, (found.mixed / total[..., None], found.highest + jnp.log(total))

    _, (outputs, log_totals) = lax.scan(one_row, None, jnp.arange(num_rows))
    output, log_total = _joined(outputs), _joined(log_totals)
    return output, (inputs, output, log_total)


def _backward(shape: Blocks, saved: tuple[Inputs, Array, Array], cotangent: Array) -> tuple[Inputs]:
    inputs, output, log_total = saved
    num_rows = inputs.query.shape[2] // shape.query_block
    num_columns = inputs.key.shape[2] // shape.key_block
    # The softmax's gradient subtracts the mean of dP under P, which is dO . O, with dropout too.
    mean = jnp.sum(cotangent * output, axis=-1)

    def one_column(to_query: Array, column: Array) -> tuple[Array, tuple[Array, Array]]:
        key, value = (_block(each, column, shape.key_block) for each in (inputs.key, inputs.value))

        def add(row: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            to_query, to_key, to_value = so_far
            query, arriving, log_row, mean_row = (
                _block(each, row, shape.query_block) for each in (inputs.query, cotangent, log_total, mean)
            )
            scores, visible = _scores(query, key, row, column, inputs, shape)
            weights = jnp.where(visible, jnp.exp(scores - log_row[..., None]), 0.0)
            dropped = _drop(weights, row, column, inputs, shape)
            to_value += einsum("BHQM,BHQU->BHMU", dropped, arriving, shape.precision)
            to_dropped = einsum("BHQU,BHMU->BHQM", arriving, value, shape.precision)
            to_weights = _drop(to_dropped, row, column, inputs, shape)
            to_scores = weights * (to_weights - mean_row[..., None])
            to_key += einsum("BHQM,BHQK->BHMK", to_scores, query, shape.precision)
            to_row = einsum("BHQM,BHMK->BHQK", to_scores, key, shape.precision)
            start = row * shape.query_block
            to_row += lax.dynamic_slice_in_dim(to_query, start, shape.query_block, axis=2)
            return lax.dynamic_update_slice_in_dim(to_query, to_row, start, axis=2), to_key, to_value

        zero = to_query, jnp.zeros(key.shape, jnp.float32), jnp.zeros(value.shape, jnp.float32)
        to_query, to_key, to_value = lax.fori_loop(shape.first_query_block(column), num_rows, add, zero)
        return to_query, (to_key, to_value)

    start = jnp.zeros(inputs.query.shape, jnp.float32)
    to_query, (to_keys, to_values) = lax.scan(one_column, start, jnp.arange(num_columns))
    dtype = inputs.query.dtype
    to_query, to_key, to_value = (each.astype(dtype) for each in (to_query, _joined(to_keys), _joined(to_values)))
    return (inputs._replace(query=to_query, key=to_key, value=to_value, **WITHOUT_GRADIENT),)


_attention.defvjp(_forward, _backward)


def _scores(query: Array, key: Array, row: Array, column: Array, inputs: Inputs, shape: Blocks) -> tuple[Array, Array]:
    """One block of scores, and which of them are visible."""
    visible = segment_mask(
        _block(inputs.query_segments, row, shape.query_block, axis=1),
        _block(inputs.key_segments, column, shape.key_block, axis=1),
    )[:, None]
    if shape.is_causal:
        query_positions = row * shape.query_block + jnp.arange(shape.query_block)
        key_positions = column * shape.key_block + jnp.arange(shape.key_block)
        visible &= (key_positions[None, :] <= query_positions[:, None])[None, None]
    scores = einsum("BHQK,BHMK->BHQM", query, key, shape.precision)
    visible = jnp.broadcast_to(visible, scores.shape)
    return jnp.where(visible, scores, MASKED_SCORE), visible


def _drop(weights: Array, row: Array, column: Array, inputs: Inputs, shape: Blocks) -> Array:
    """Dropout of one block of weights, as in all of them."""
    if inputs.dropout is None:
        return weights
    start = 0, 0, row * shape.query_block, column * shape.key_block
    return inputs.dropout.block(weights, start, (*inputs.query.shape[:2], shape.queries, shape.keys))


def _block(array: Array, index: Array, size: int, axis: int = 2) -> Array:
    return lax.dynamic_slice_in_dim(array, index * size, size, axis)


def _joined(blocks: Array) -> Array:
    """[blocks, B, H, size, ...] to [B, H, blocks * size, ...]."""
    blocks = jnp.moveaxis(blocks, 0, 2)
    return blocks.reshape(*blocks.shape[:2], -1, *blocks.shape[4:])


def padded(array: Array, axis: int, multiple: int) -> Array:
    """``array`` with zeros at the end of ``axis``, up to a multiple of ``multiple``."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = 0, -array.shape[axis] % multiple
    return jnp.pad(array, widths)
