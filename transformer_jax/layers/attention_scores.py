"""Attention scores of the models before the Transformer, as functions; ``rnn_attention`` has the modules.

Queries are [B, Q, ...] (positions, or the beams of a decoding step), keys [B, M, ...], scores [B, Q, M]. Projections of a whole
sentence are passed in. ``attend`` turns scores into an output and weights, as ``scaled_dot_product_attention`` does.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, Int
from transformer_jax.layers.scaled_dot_product import MASKED_SCORE
from transformer_jax.precision import FLOAT32, Precision, einsum

Normalizer = Callable[[Array, Array], Array]


def attend(
    scores_BQM: Float[Array, "B Q M"],
    value_BMU: Float[Array, "B M U"],
    mask_BQM: Bool[Array, "#B #Q M"],
    *,
    normalize: Normalizer | None = None,
    precision: Precision = FLOAT32,
) -> tuple[Float[Array, "B Q U"], Float[Array, "B Q M"]]:
    """The expectation of the values under the normalized scores (Bahdanau et al. 2015, equations 5 and 6), and the weights.

    ``normalize`` is ``masked_softmax`` unless given.
    """
    weights_BQM = (normalize or masked_softmax)(scores_BQM, jnp.broadcast_to(mask_BQM, scores_BQM.shape))
    return einsum("BQM,BMU->BQU", weights_BQM, value_BMU, precision), weights_BQM


def masked_softmax(scores: Float[Array, "B Q M"], mask: Bool[Array, "B Q M"]) -> Float[Array, "B Q M"]:
    """Softmax over the visible keys, in float32; zeros where there is none."""
    weights = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), MASKED_SCORE), axis=-1)
    return jnp.where(mask, weights, 0.0)


def sharpened_softmax(
    scores: Float[Array, "B Q M"], mask: Bool[Array, "B Q M"], *, sharpness: float
) -> Float[Array, "B Q M"]:
    """Softmax of the scores times ``sharpness``, the inverse temperature (Chorowski et al. 2015, section 2.3)."""
    return masked_softmax(sharpness * scores, mask)


def smoothed_sigmoid(scores: Float[Array, "B Q M"], mask: Bool[Array, "B Q M"]) -> Float[Array, "B Q M"]:
    """Sigmoids divided by their sum: several keys can be strong at once (Chorowski et al. 2015, section 2.3)."""
    # From the logarithm, so that weights of very small sigmoids still sum to one.
    return masked_softmax(jax.nn.log_sigmoid(scores.astype(jnp.float32)), mask)


def dot_scores(
    query_BQA: Float[Array, "B Q A"], key_BMA: Float[Array, "B M A"], precision: Precision = FLOAT32
) -> Float[Array, "B Q M"]:
    """q · k (Luong et al. 2015, section 3.1, dot)."""
    return einsum("BQA,BMA->BQM", query_BQA, key_BMA, precision)


def scaled_dot_scores(
    query_BQA: Float[Array, "B Q A"], key_BMA: Float[Array, "B M A"], precision: Precision = FLOAT32
) -> Float[Array, "B Q M"]:
    """q · k / sqrt(A) (Vaswani et al. 2017, equation 1)."""
    return dot_scores(query_BQA * query_BQA.shape[-1] ** -0.5, key_BMA, precision)


def general_scores(
    query_BQA: Float[Array, "B Q A"],
    key_BME: Float[Array, "B M E"],
    kernel_AE: Float[Array, "A E"],
    precision: Precision = FLOAT32,
) -> Float[Array, "B Q M"]:
    """q W k (Luong et al. 2015, section 3.1, general)."""
    return dot_scores(einsum("BQA,AE->BQE", query_BQA, kernel_AE, precision), key_BME, precision)


def additive_scores(
    query_BQA: Float[Array, "B Q A"], key_BMA: Float[Array, "B M A"], vector_A: Float[Array, "A"]
) -> Float[Array, "B Q M"]:
    """v · tanh(q + k) of projected queries W q and keys U k (Bahdanau et al. 2015, appendix A.1.2).

    The score ``concat`` of Luong et al. 2015 (section 3.1), v · tanh(W [q; k]), is the same with the two halves of W.
    """
    hidden_BQMA = jnp.tanh(query_BQA[:, :, None, :] + key_BMA[:, None, :, :])
    return jnp.einsum("BQMA,A->BQM", hidden_BQMA, vector_A)


def normalized_additive_scores(
    query_BQA: Float[Array, "B Q A"],
    key_BMA: Float[Array, "B M A"],
    vector_A: Float[Array, "A"],
    gain: Float[Array, ""],
    bias_A: Float[Array, "A"],
) -> Float[Array, "B Q M"]:
    """g v / |v| · tanh(q + k + b): additive with a weight-normalized v (Salimans and Kingma 2016, equation 2).

    As in the public implementation of Luong et al. 2017 (tensorflow/nmt, ``normed_bahdanau``).
    """
    direction = vector_A / jnp.linalg.norm(vector_A)
    return additive_scores(query_BQA + bias_A[None, None, :], key_BMA, gain * direction)


def location_based_scores(
    query_BQD: Float[Array, "B Q D"], kernel_DP: Float[Array, "D P"], memory_length: int, precision: Precision = FLOAT32
) -> Float[Array, "B Q M"]:
    """W q, a score for each position whatever its content (Luong et al. 2015, equation 8).

    A shorter source uses the first of the P positions (the paper normalizes over all P); positions beyond P get no weight.
    """
    scores_BQP = einsum("BQD,DP->BQP", query_BQD, kernel_DP, precision)[:, :, :memory_length]
    missing = memory_length - scores_BQP.shape[-1]
    return jnp.pad(scores_BQP, ((0, 0), (0, 0), (0, missing)), constant_values=MASKED_SCORE)


def monotonic_centers(positions_BQ: Int[Array, "B Q"], lengths_B: Int[Array, "B"]) -> Float[Array, "B Q"]:
    """p = t (Luong et al. 2015, section 3.2, local-m), kept inside the source."""
    return jnp.minimum(positions_BQ, lengths_B[:, None] - 1).astype(jnp.float32)


def predicted_centers(
    query_BQA: Float[Array, "B Q A"], vector_A: Float[Array, "A"], lengths_B: Int[Array, "B"]
) -> Float[Array, "B Q"]:
    """p = S · sigmoid(v · tanh(W q)) of projected queries W q (Luong et al. 2015, equation 9).

    With S - 1 instead of S: a center is a source position, counted from 0.
    """
    predicted_BQ = jax.nn.sigmoid(jnp.einsum("BQA,A->BQ", jnp.tanh(query_BQA), vector_A))
    return predicted_BQ * (lengths_B[:, None] - 1).astype(jnp.float32)


def window_mask(
    centers_BQ: Float[Array, "B Q"], half_width: int, memory_mask_BM: Bool[Array, "B M"]
) -> Bool[Array, "B Q M"]:
    """True within [p - D, p + D] and inside the source (Luong et al. 2015, section 3.2).

    For centers 0 and 2, D = 1 and a source of four tokens and one position of padding::

        [[1, 1, 0, 0, 0],
         [0, 1, 1, 1, 0]]
    """
    distance_BQM = jnp.abs(_source_positions(memory_mask_BM) - centers_BQ[:, :, None])
    return (distance_BQM <= half_width) & memory_mask_BM[:, None, :]


def gaussian_scores(
    centers_BQ: Float[Array, "B Q"], half_width: int, memory_mask_BM: Bool[Array, "B M"]
) -> Float[Array, "B Q M"]:
    """-(s - p)^2 / (2 sigma^2) with sigma = D / 2, to be added to the scores of local-p (Luong et al. 2015, equation 10).

    The paper multiplies the normalized weights by exp of this, so that they sum to less than one. Added to the scores, it gives
    the same weights up to a factor, and they sum to one.
    """
    deviation = half_width / 2
    return -((_source_positions(memory_mask_BM) - centers_BQ[:, :, None]) ** 2) / (2 * deviation**2)


def _source_positions(memory_mask_BM: Bool[Array, "B M"]) -> Float[Array, "1 1 M"]:
    return jnp.arange(memory_mask_BM.shape[1], dtype=jnp.float32)[None, None, :]


def location_features(weights_BQM: Float[Array, "B Q M"], filters_RC: Float[Array, "R C"]) -> Float[Array, "B Q M C"]:
    """C features of the previous (or summed) weights around each position, F * alpha (Chorowski et al. 2015, equation 8).

    The filter has R taps, centered on the position; weights beyond the source are zero.
    """
    batch, queries, positions = weights_BQM.shape
    taps = filters_RC.shape[0]
    signal = weights_BQM.reshape(batch * queries, positions, 1)
    padding = [((taps - 1) // 2, taps // 2)]
    features = lax.conv_general_dilated(
        signal, filters_RC[:, None, :], (1,), padding, dimension_numbers=("NWC", "WIO", "NWC")
    )
    return features.reshape(batch, queries, positions, -1)


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
