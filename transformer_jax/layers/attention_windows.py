"""Attention that knows where it is: the windows of Luong et al. 2015 and the location features of Chorowski et al. 2015."""

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, Int


def monotonic_centers(positions_BQ: Int[Array, "B Q"], lengths_B: Int[Array, "B"]) -> Float[Array, "B Q"]:
    """p = t (Luong et al. 2015, section 3.2, local-m), kept inside the source."""
    return jnp.minimum(positions_BQ, lengths_B[:, None] - 1).astype(jnp.float32)


def predicted_centers(
    query_BQA: Float[Array, "B Q A"], vector_A: Float[Array, "A"], lengths_B: Int[Array, "B"]
) -> Float[Array, "B Q"]:
    """p = S · sigmoid(v · tanh(W q)) of projected queries W q (Luong et al. 2015, equation 9).

    S - 1 takes the place of S, so that a centre is the index, from 0, of a place inside the source.
    """
    predicted_BQ = jax.nn.sigmoid(jnp.einsum("BQA,A->BQ", jnp.tanh(query_BQA), vector_A))
    return predicted_BQ * (lengths_B[:, None] - 1).astype(jnp.float32)


def window_mask(
    centers_BQ: Float[Array, "B Q"], half_width: int, memory_mask_BM: Bool[Array, "B M"]
) -> Bool[Array, "B Q M"]:
    """True within [p - D, p + D] and inside the source (Luong et al. 2015, section 3.2).

    For centres 0 and 2, D = 1 and a source of four with a fifth place of padding::

        [[1, 1, 0, 0, 0],
         [0, 1, 1, 1, 0]]
    """
    distance_BQM = jnp.abs(_places(memory_mask_BM) - centers_BQ[:, :, None])
    return (distance_BQM <= half_width) & memory_mask_BM[:, None, :]


def gaussian_scores(
    centers_BQ: Float[Array, "B Q"], half_width: int, memory_mask_BM: Bool[Array, "B M"]
) -> Float[Array, "B Q M"]:
    """-(s - p)^2 / (2 sigma^2) with sigma = D / 2, to be added to the scores of local-p (Luong et al. 2015, equation 10).

    The paper multiplies the normalised weights by exp of this and leaves their sum below one; added to the scores instead, the
    weights are the same up to a factor, and sum to one.
    """
    deviation = half_width / 2
    return -((_places(memory_mask_BM) - centers_BQ[:, :, None]) ** 2) / (2 * deviation**2)


def location_features(weights_BQM: Float[Array, "B Q M"], filters_RC: Float[Array, "R C"]) -> Float[Array, "B Q M C"]:
    """C features of the previous (or of the summed) weights around each place, F * alpha (Chorowski et al. 2015, equation 8).

    The filter has R taps, its middle on the place itself; beyond the source the weights are zero.
    """
    batch, queries, places = weights_BQM.shape
    taps = filters_RC.shape[0]
    signal = weights_BQM.reshape(batch * queries, places, 1)
    padding = [((taps - 1) // 2, taps // 2)]
    features = lax.conv_general_dilated(
        signal, filters_RC[:, None, :], (1,), padding, dimension_numbers=("NWC", "WIO", "NWC")
    )
    return features.reshape(batch, queries, places, -1)


def location_sensitive_scores(
    query_BQA: Float[Array, "B Q A"],
    key_BMA: Float[Array, "B M A"],
    feature_BQMA: Float[Array, "B Q M A"],
    vector_A: Float[Array, "A"],
    bias_A: Float[Array, "A"],
) -> Float[Array, "B Q M"]:
    """w · tanh(W s + V h + U f + b) of projected state, memory and location features (Chorowski et al. 2015, equation 9)."""
    summed = query_BQA[:, :, None, :] + key_BMA[:, None, :, :] + feature_BQMA + bias_A[None, None, None, :]
    return jnp.einsum("BQMA,A->BQM", jnp.tanh(summed), vector_A)


def _places(memory_mask_BM: Bool[Array, "B M"]) -> Float[Array, "1 1 M"]:
    return jnp.arange(memory_mask_BM.shape[1], dtype=jnp.float32)[None, None, :]
