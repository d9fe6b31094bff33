"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1)."""

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float
from transformer_jax.layers.dropout import Drops
from transformer_jax.mixed_precision import FLOAT32, Precision, contract

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
    scores_BHQM = contract("BHQK,BHMK->BHQM", scaled_query, key_BHMK, precision.wide)
    mask = jnp.broadcast_to(mask_BQM[:, None, :, :], scores_BHQM.shape)
    weights_BHQM = jax.nn.softmax(jnp.where(mask, scores_BHQM, MASKED_SCORE), axis=-1)
    kept_BHQM = weights_BHQM if drops is None else drops(weights_BHQM)
    return contract("BHQM,BHMU->BHQU", kept_BHQM, value_BHMU, precision), weights_BHQM
