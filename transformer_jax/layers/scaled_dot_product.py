"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1): its equation, and the interface of faster backends."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float, Int
from transformer_jax.layers.dropout import DropoutMask
from transformer_jax.layers.masks import SentenceMask
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
    """softmax(Q Kᵀ / sqrt(d_k)) V (equation 1) in every head, the softmax in float32; and the weights before dropout."""
    scaled_query = query_BHQK * query_BHQK.shape[-1] ** -0.5
    scores_BHQM = einsum("BHQK,BHMK->BHQM", scaled_query, key_BHMK, precision.wide)
    mask = jnp.broadcast_to(mask_BQM[:, None, :, :], scores_BHQM.shape)
    weights_BHQM = softmax(jnp.where(mask, scores_BHQM, MASKED_SCORE), precision.output)
    dropped_BHQM = weights_BHQM if dropout is None else dropout(weights_BHQM)
    return einsum("BHQM,BHMU->BHQU", dropped_BHQM, value_BHMU, precision), weights_BHQM.astype(jnp.float32)


class At(NamedTuple):
    """Positions and queries of a block of scores; ``query`` as it enters the scores, times K^-1/2."""

    query_positions: Int[Array, "B Q"]
    key_positions: Int[Array, "B M"]
    query: Float[Array, "B H Q K"]

    @property
    def distance(self) -> Int[Array, "B Q M"]:
        """Key position minus query position; negative for keys before the query."""
        return self.key_positions[:, None, :] - self.query_positions[:, :, None]


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax(scores: Float[Array, "*B M"], dtype: str = "float32") -> Float[Array, "*B M"]:
    """Softmax of float32 ``scores``, rounded to ``dtype``; the backward pass keeps only the rounded weights."""
    return jax.nn.softmax(scores, axis=-1).astype(dtype)


def _softmax_forward(scores: Array, dtype: str) -> tuple[Array, Array]:
    weights = rounding_barrier(softmax(scores, dtype))
    return weights, weights


def _softmax_backward(dtype: str, weights: Array, gradient: Array) -> tuple[Array]:
    del dtype
    weights, gradient = weights.astype(jnp.float32), gradient.astype(jnp.float32)
    return (weights * (gradient - jnp.sum(gradient * weights, axis=-1, keepdims=True)),)


softmax.defvjp(_softmax_forward, _softmax_backward)


@runtime_checkable
class AttentionBackend(Protocol):
    """Equation 1 in every head. A query that sees no key (padding) gets a finite output that is up to the backend."""

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
        """Output of every query; ``dropout`` masks the weights [B, H, Q, M]."""


@dataclass(frozen=True)
class EinsumAttention:
    """All scores at once: the reference for other backends, and the fastest for short sequences."""

    def __call__(
        self, q: Array, k: Array, v: Array, mask: SentenceMask, *, dropout: DropoutMask | None, precision: Precision
    ) -> Array:
        return scaled_dot_product_attention(q, k, v, mask.array(), dropout=dropout, precision=precision)[0]
