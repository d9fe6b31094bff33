"""cuDNN attention from a query to a range of keys, without an array of queries x keys.

The sentences of a packed row are neighbors, so two numbers describe the keys that a query sees.
cuDNN's kernel compares them with the index of a key (a ``score_mod``, as in flex attention),
forward and backward.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import MASKED_SCORE
from transformer_jax.private_modules import cudnn_attention


def key_ranges(mask: SentenceMask) -> tuple[Int[Array, "B Q"], Int[Array, "B Q"]]:
    """Return for queries the first key of the segment in ``mask.window``, and the end.

    Segments of a row are numbered up to its length, and their tokens are neighbors. A query that
    sees no key (padding) gets the first of the row, so that its weights are finite.
    """
    queries, keys = jnp.asarray(mask.query_segments), jnp.asarray(mask.key_segments)
    (rows, num_queries), num_keys = queries.shape, keys.shape[1]
    row, key = jnp.arange(rows)[:, None], jnp.arange(num_keys, dtype=jnp.int32)[None, :]
    segments = rows, max(num_queries, num_keys) + 1
    first = jnp.full(segments, num_keys, jnp.int32).at[row, keys].min(jnp.broadcast_to(key, keys.shape))
    end = jnp.zeros(segments, jnp.int32).at[row, keys].max(jnp.broadcast_to(key + 1, keys.shape))
    first, end = (jnp.take_along_axis(bound, queries, axis=1) for bound in (first, end))
    query, (left, right) = jnp.arange(num_queries, dtype=jnp.int32)[None, :], (mask.window.left, mask.window.right)
    first = first if left is None else jnp.maximum(first, query - left)
    end = end if right is None else jnp.minimum(end, query + right + 1)
    sees_keys = (queries != 0) & (first < end)
    return jnp.where(sees_keys, first, 0), jnp.where(sees_keys, end, 1)


@jax.custom_vjp
def attend_to_ranges(
    query_BQHK: Float[Array, "B Q H K"],
    key_BMGK: Float[Array, "B M G K"],
    value_BMGK: Float[Array, "B M G K"],
    first_BQ: Int[Array, "B Q"],
    end_BQ: Int[Array, "B Q"],
) -> Float[Array, "B Q H K"]:
    """Attend (equation 1) to the keys from ``first`` to ``end``, on one GPU from Hopper on."""
    return _attended(query_BQHK, key_BMGK, value_BMGK, first_BQ, end_BQ, is_training=False)[0]


def _forward(query: Array, key: Array, value: Array, first: Array, end: Array) -> tuple[Array, tuple[Array, ...]]:
    residuals = query, key, value, first, end
    return _attended(*residuals, is_training=True)[0], residuals


def _backward(residuals: tuple[Array, ...], gradient: Array) -> tuple[Array | None, ...]:
    *operands, first, end = residuals
    # XLA takes the function of the scores from the forward kernel that computed the normalizers, so
    # that kernel has to be beside the backward kernel: in the loop of ``scan_layers`` too. Outside
    # of a loop the compiler merges both calls.
    heads, log_normalizers = _attended(*residuals, is_training=True)
    kernel = cudnn_attention()._dot_product_attention_bwd_p
    gradients = _bind(kernel, visible_gradients, 2, tuple(operands), first, end, log_normalizers, heads, gradient)
    return (*gradients, None, None)


def _attended(query: Array, key: Array, value: Array, first: Array, end: Array, *, is_training: bool) -> list[Array]:
    """Return the heads, and if ``is_training`` the logarithms of the normalizers."""
    kernel = cudnn_attention()._dot_product_attention_fwd_p
    return _bind(kernel, visible_scores, 1, (query, key, value), first, end, is_training=is_training)


attend_to_ranges.defvjp(_forward, _backward)


def _bind(
    kernel: Any,
    change: Any,
    num_scores: int,
    operands: tuple[Array, ...],
    first: Array,
    end: Array,
    *of_backward: Array,
    **options: bool,
) -> list[Array]:
    """Call a kernel of cuDNN with ``change``, whose first ``num_scores`` arguments are scores."""
    query, key, _ = operands
    # Bias, lengths, offsets and page tables, none of which is passed on.
    unused = [jnp.zeros(0, query.dtype)] * 7
    ends = first[:, None, :, None], end[:, None, :, None]
    scores = jax.ShapeDtypeStruct((query.shape[0], query.shape[2], query.shape[1], key.shape[1]), jnp.float32)
    return kernel.bind(
        *operands,
        *unused,
        *of_backward,
        *ends,
        scale=query.shape[-1] ** -0.5,
        seed=0,
        dropout_rate=0.0,
        variadic_args=(False, False),
        mask_type=cudnn_attention().MaskType.NO_MASK,
        layout=cudnn_attention().AttentionLayout.BTNH.value,
        sliding_window_length=None,
        score_mod_name=change.__name__,
        score_mod_jaxpr=jax.make_jaxpr(change)(*[scores] * num_scores, *ends),
        **options,
    )


def visible_scores(scores: Float[Array, "B H Q M"], first: Array, end: Array) -> Float[Array, "B H Q M"]:
    """Hide keys outside of ``first`` to ``end`` [B, 1, Q, 1], in operations that XLA translates."""
    return lax.select(_is_visible(scores, first, end), scores, lax.full_like(scores, MASKED_SCORE))


def visible_gradients(
    gradient: Float[Array, "B H Q M"], scores: Float[Array, "B H Q M"], first: Array, end: Array
) -> Float[Array, "B H Q M"]:
    """Return the gradient of the argument of ``visible_scores``."""
    return lax.select(_is_visible(scores, first, end), gradient, lax.full_like(gradient, 0.0))


def _is_visible(scores: Array, first: Array, end: Array) -> Array:
    # The index comes first in a comparison: cuDNN's first operand has to be an array of the kernel.
    key = lax.broadcasted_iota(jnp.int32, scores.shape, 3)
    first, end = (jnp.broadcast_to(bound, scores.shape) for bound in (first, end))
    return (key >= first) & (key < end)
