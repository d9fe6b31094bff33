"""Scaled dot-product attention (section 3.2.1): its equation, and the interface of backends."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import AnyArray, Array, Bool, Float, Int
from transformer_jax.layers.dropout import DropoutMask
from transformer_jax.layers.masks import SentenceMask, row_indices
from transformer_jax.precision import FLOAT32, Precision, einsum, rounding_barrier

# Finite, so that a query that sees no key (padding) gets uniform weights and not NaN.
MASKED_SCORE = -1e9


def scaled_dot_product_attention(
    query_BHQK: Float[Array, "B H Q K"],
    key_BHMK: Float[Array, "B H M K"],
    value_BHMU: Float[Array, "B H M U"],
    mask_BQM: Bool[Array, "#B #Q M"],
    *,
    dropout: DropoutMask | None = None,
    precision: Precision = FLOAT32,
) -> tuple[Float[Array, "B H Q U"], Float[Array, "B H Q M"]]:
    """Return softmax(Q Kᵀ / sqrt(d_k)) V in every head, and the weights before dropout.

    The softmax is computed in float32.
    """
    scaled_query = query_BHQK * query_BHQK.shape[-1] ** -0.5
    scores_BHQM = einsum("BHQK,BHMK->BHQM", scaled_query, key_BHMK, precision.float32_output)
    mask = jnp.broadcast_to(mask_BQM[:, None, :, :], scores_BHQM.shape)
    weights_BHQM = softmax(jnp.where(mask, scores_BHQM, MASKED_SCORE), precision.output)
    dropped_BHQM = weights_BHQM if dropout is None else dropout(weights_BHQM)
    return einsum("BHQM,BHMU->BHQU", dropped_BHQM, value_BHMU, precision), weights_BHQM.astype(jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax(scores: Float[Array, "*B M"], dtype: str = "float32") -> Float[Array, "*B M"]:
    """Return the softmax of float32 ``scores``, and keep only rounded weights for the gradient."""
    return jax.nn.softmax(scores, axis=-1).astype(dtype)


def _softmax_forward(scores: Array, dtype: str) -> tuple[Array, Array]:
    weights = rounding_barrier(softmax(scores, dtype))
    return weights, weights


def _softmax_backward(dtype: str, weights: Array, gradient: Array) -> tuple[Array]:
    weights, gradient = weights.astype(jnp.float32), gradient.astype(jnp.float32)
    return (weights * (gradient - jnp.sum(gradient * weights, axis=-1, keepdims=True)),)


softmax.defvjp(_softmax_forward, _softmax_backward)


class At(NamedTuple):
    """Positions and queries of a block of scores; ``query`` is multiplied by K^-1/2."""

    query_positions: Int[AnyArray, "#B Q"]
    key_positions: Int[AnyArray, "#B M"]
    query: Float[Array, "B H Q K"]

    @property
    def distance(self) -> Int[Array, "#B Q M"]:
        """Key position minus query position, negative for keys before the query."""
        return jnp.asarray(self.key_positions)[:, None, :] - jnp.asarray(self.query_positions)[:, :, None]


ScoreMod = Callable[[Float[Array, "B H Q M"], At], Float[Array, "B H Q M"]]
"""Other scores, before the mask and the softmax: ``jax.tree_util.Partial(function, *arrays)``,
called as ``function(*arrays, scores, at)`` with a block of float32 scores. Arrays with a gradient
must be among ``arrays``."""


class Denominator(NamedTuple):
    """A denominator of the weights: exp(``log_rest``) plus, for every key, exp(score).

    ``terms``, ``jax.tree_util.Partial(function, *arrays)``, replaces exp(score) in the numerator
    and in the denominator: ``function(*arrays, scores, shift)`` returns the two [B, H, Q, M] times
    exp(-shift), ``shift`` [B, H, Q, 1], float32.
    """

    log_rest: Float[Array, " H"]
    terms: Callable[[Array, Array], tuple[Array, Array]] | None = None


class AttentionOptions(NamedTuple):
    """Options of a backend: ``score_mod`` changes scores, ``dropout`` masks weights [B, H, Q, M].

    ``denominator`` replaces the sum of the exponentials.
    """

    dropout: DropoutMask | None
    precision: Precision
    score_mod: ScoreMod | None = None
    denominator: Denominator | None = None


def modified_attention(
    query_BHQK: Float[Array, "B H Q K"],
    key_BGMK: Float[Array, "B G M K"],
    value_BVMU: Float[Array, "B V M U"],
    mask_BQM: Bool[Array, "#B #Q M"],
    options: AttentionOptions,
    *,
    weights_mod: Callable[[Float[Array, "B H Q M"], Float[Array, "B H Q M"]], Float[Array, "B H Q M"]] | None = None,
    positions: tuple[Int[AnyArray, "#B Q"], Int[AnyArray, "#B M"]] | None = None,
) -> tuple[Float[Array, "B H Q U"], Float[Array, "B H Q M"]]:
    """Compute ``scaled_dot_product_attention`` with shared heads, changed scores and weights.

    Query head h uses key head h // (H / G) (Ainslie et al. 2023, section 2.2), and value head h //
    (H / V). ``score_mod`` reads ``positions`` of queries and keys, by default indices in the row.
    ``weights_mod`` changes the weights after the softmax; it reads them and the masked scores.
    """
    dropout, precision, score_mod, denominator = options
    scaled_query = query_BHQK * query_BHQK.shape[-1] ** -0.5
    scores_BHQM = scores_of(scaled_query, key_BGMK, precision.float32_output)
    if score_mod is not None:
        at = At(*positions or row_indices(*scores_BHQM.shape[2:]), scaled_query)
        scores_BHQM = score_mod(scores_BHQM, at).astype(jnp.float32)
    mask = jnp.broadcast_to(mask_BQM[:, None, :, :], scores_BHQM.shape)
    scores_BHQM = jnp.where(mask, scores_BHQM, MASKED_SCORE)
    if denominator is None:
        weights_BHQM = softmax(scores_BHQM, precision.output)
    else:
        weights_BHQM = weights_over(denominator, scores_BHQM, mask).astype(precision.output)
    if weights_mod is not None:
        weights_BHQM = weights_mod(weights_BHQM, scores_BHQM).astype(precision.output)
    dropped_BHQM = weights_BHQM if dropout is None else dropout(weights_BHQM)
    return weighted_values(dropped_BHQM, value_BVMU, precision), weights_BHQM.astype(jnp.float32)


def weights_over(
    denominator: Denominator, scores: Float[Array, "B H Q M"], visible: Bool[Array, "B H Q M"]
) -> Float[Array, "B H Q M"]:
    """Return the weights of masked scores, whose sum may be less than 1."""
    log_rest = denominator.log_rest[None, :, None, None]
    shift = lax.stop_gradient(jnp.maximum(jnp.max(scores, axis=-1, keepdims=True), log_rest))
    numerators, terms = numerators_and_terms(denominator, scores, shift, visible)
    return numerators / (jnp.exp(log_rest - shift) + jnp.sum(terms, axis=-1, keepdims=True))


def numerators_and_terms(
    denominator: Denominator | None,
    scores: Float[Array, "B H Q M"],
    shift: Float[Array, "B H Q 1"],
    visible: Bool[Array, "B H Q M"],
) -> tuple[Float[Array, "B H Q M"], Float[Array, "B H Q M"]]:
    """Return numerators of the weights and terms of their denominator, times exp(-shift).

    Both are 0 for hidden keys.
    """
    if denominator is None or denominator.terms is None:
        exponentials = jnp.where(visible, jnp.exp(scores - shift), 0.0)
        return exponentials, exponentials
    numerators, terms = denominator.terms(scores, shift)
    return jnp.where(visible, numerators, 0.0), jnp.where(visible, terms, 0.0)


def scores_of(
    query_BHQK: Float[Array, "B H Q K"], key_BGMK: Float[Array, "B G M K"], precision: Precision
) -> Float[Array, "B H Q M"]:
    query_BGQK = by_key_head(query_BHQK, key_BGMK.shape[1])
    scores = einsum("BHQK,BHMK->BHQM", query_BGQK, key_BGMK, precision)
    return scores.reshape(*query_BHQK.shape[:3], -1)


def weighted_values(
    weights_BHQM: Float[Array, "B H Q M"], value_BVMU: Float[Array, "B V M U"], precision: Precision
) -> Float[Array, "B H Q U"]:
    weights_BVQM = by_key_head(weights_BHQM, value_BVMU.shape[1])
    heads = einsum("BHQM,BHMU->BHQU", weights_BVQM, value_BVMU, precision)
    return heads.reshape(*weights_BHQM.shape[:3], -1)


def by_key_head(array_BHQX: Float[Array, "B H Q X"], key_heads: int) -> Float[Array, "B G R X"]:
    """Reshape queries so that all heads of a key head are neighbors: R = H / G · Q."""
    return array_BHQX.reshape(array_BHQX.shape[0], key_heads, -1, array_BHQX.shape[3])


AttentionBackend = Callable[[Array, Array, Array, SentenceMask, AttentionOptions], Array]
"""Equation 1 in every head: q [B, H, Q, K], k [B, G, M, K], v [B, V, M, U] to outputs [B, H, Q, U].

G and V divide H. A query that sees no key (padding) gets any finite output."""


@dataclass(frozen=True)
class EinsumAttention:
    """All scores at once: the reference, and the fastest for short sequences. Takes everything."""

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        dropout, precision, score_mod, denominator = options
        if score_mod is None and denominator is None and k.shape[1] == v.shape[1] == q.shape[1]:
            return scaled_dot_product_attention(q, k, v, mask.array(), dropout=dropout, precision=precision)[0]
        return modified_attention(q, k, v, mask.array(), options, positions=mask.positions)[0]
