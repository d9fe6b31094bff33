"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1)."""

from functools import partial

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float
from transformer_jax.layers.dropout import Drops
from transformer_jax.precision import FLOAT32, Precision, einsum, rounding_barrier

# Finite, so that a row that may attend nowhere (padding) gets uniform weights and not NaN.
MASKED_SCORE = -1e9


def scaled_dot_product_attention(
    query_BHQK: Float[Array, "B H Q K"],
    key_BHMK: Float[Array, "B H M K"],
    value_BHMU: Float[Array, "B H M U"],
    mask_BQM: Bool[Array, "#B #Q M"],
    *,
    drops: Drops | None = None,
    precision: Precision = FLOAT32,
) -> tuple[Float[Array, "B H Q U"], Float[Array, "B H Q M"]]:
    """softmax(Q Kᵀ / sqrt(d_k)) V (equation 1), in every head; softmax in float32.

    Returns the output and the weights before dropout. ``drops`` are of the weights that multiply V.
    """
    scaled_query = query_BHQK * query_BHQK.shape[-1] ** -0.5
    scores_BHQM = einsum("BHQK,BHMK->BHQM", scaled_query, key_BHMK, precision.wide)
    mask = jnp.broadcast_to(mask_BQM[:, None, :, :], scores_BHQM.shape)
    weights_BHQM = softmax(jnp.where(mask, scores_BHQM, MASKED_SCORE), precision.output)
    kept_BHQM = weights_BHQM if drops is None else drops(weights_BHQM)
    return einsum("BHQM,BHMU->BHQU", kept_BHQM, value_BHMU, precision), weights_BHQM.astype(jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax(scores: Float[Array, "*B M"], dtype: str = "float32") -> Float[Array, "*B M"]:
    """Softmax of float32 ``scores``, rounded to ``dtype``: of both, the backward pass needs the rounded weights alone."""
    return jax.nn.softmax(scores, axis=-1).astype(dtype)


def _softmax_forward(scores: Array, dtype: str) -> tuple[Array, Array]:
    weights = rounding_barrier(softmax(scores, dtype))
    return weights, weights


def _softmax_backward(dtype: str, weights: Array, gradient: Array) -> tuple[Array]:
    del dtype
    weights, gradient = weights.astype(jnp.float32), gradient.astype(jnp.float32)
    return (weights * (gradient - jnp.sum(gradient * weights, axis=-1, keepdims=True)),)


softmax.defvjp(_softmax_forward, _softmax_backward)
