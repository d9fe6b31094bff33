"""Attention scores of the models before the Transformer.

As functions: queries are [B, Q, ...] (the positions, or the beams, that ask at once), keys [B, M, ...], scores [B, Q, M];
what was projected once a sentence is handed in projected. ``attend`` turns scores into an output and weights, as
``scaled_dot_product_attention`` does. As modules, with their parameters, below. For windows see ``attention_windows``.
"""

from collections.abc import Callable
from typing import Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float
from transformer_jax.layers.initialization import xavier_uniform
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
    """Softmax over the keys that may be attended to, in float32; all zeros where there is none."""
    weights = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), MASKED_SCORE), axis=-1)
    return jnp.where(mask, weights, 0.0)


def sharpened_softmax(
    scores: Float[Array, "B Q M"], mask: Bool[Array, "B Q M"], *, sharpness: float
) -> Float[Array, "B Q M"]:
    """Softmax of the scores times ``sharpness``, the inverse temperature (Chorowski et al. 2015, section 2.3)."""
    return masked_softmax(sharpness * scores, mask)


def smoothed_sigmoid(scores: Float[Array, "B Q M"], mask: Bool[Array, "B Q M"]) -> Float[Array, "B Q M"]:
    """Sigmoids that are made to sum to one: several keys can be strong at once (Chorowski et al. 2015, section 2.3)."""
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


def concat_scores(
    query_BQD: Float[Array, "B Q D"],
    key_BME: Float[Array, "B M E"],
    kernel_CA: Float[Array, "C A"],
    vector_A: Float[Array, "A"],
    precision: Precision = FLOAT32,
) -> Float[Array, "B Q M"]:
    """v · tanh(W [q; k]) (Luong et al. 2015, section 3.1, concat): the first D of the D + E rows of W belong to the query."""
    width = query_BQD.shape[-1]
    query_BQA = einsum("BQD,DA->BQA", query_BQD, kernel_CA[:width], precision)
    return additive_scores(query_BQA, einsum("BME,EA->BMA", key_BME, kernel_CA[width:], precision), vector_A)


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
    """W q, a score for each position whatever stands there (Luong et al. 2015, equation 8).

    The paper takes the softmax over all P positions; here, as everywhere, over those of the source.

    ``kernel_DP`` knows P positions: a shorter source uses the first of them, and of a longer one, as in the paper, what lies
    beyond has no weight.
    """
    scores_BQP = einsum("BQD,DP->BQP", query_BQD, kernel_DP, precision)[:, :, :memory_length]
    missing = memory_length - scores_BQP.shape[-1]
    return jnp.pad(scores_BQP, ((0, 0), (0, 0), (0, missing)), constant_values=MASKED_SCORE)


class Score(Protocol):
    """A content-based score with its parameters."""

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """The part of the score that depends on the memory alone."""

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        """Scores of every query and key."""


class DotScore(nn.Module):
    """q · h, over sqrt(D) if ``is_scaled``; query and memory have one width (Luong et al. 2015, section 3.1)."""

    is_scaled: bool = False
    precision: Precision = FLOAT32

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """The memory itself."""
        return memory

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        """Scores of every query and key."""
        return (scaled_dot_scores if self.is_scaled else dot_scores)(query, keys, self.precision)


class GeneralScore(nn.Module):
    """q W h (Luong et al. 2015, section 3.1). Parameter: ``kernel`` [D, E]."""

    query_size: int
    memory_size: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.kernel = self.param("kernel", xavier_uniform(0, 1), (self.query_size, self.memory_size))

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """The memory itself."""
        return memory

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        """Scores of every query and key."""
        return general_scores(query, keys, self.kernel, self.precision)


class AdditiveScore(nn.Module):
    """v · tanh(W q + U h) (Bahdanau et al. 2015, appendix A.1.2), which is also ``concat`` (Luong et al. 2015, section 3.1).

    With ``is_normalized`` v has a gain and the sum a bias (Salimans and Kingma 2016). Parameters: ``query_kernel``
    [D, A], ``memory_kernel`` [E, A], ``vector`` [A]; ``gain`` and ``bias`` [A] where normalized.
    """

    query_size: int
    memory_size: int
    attention_size: int
    is_normalized: bool = False
    precision: Precision = FLOAT32

    def setup(self) -> None:
        size = self.attention_size
        self.query_kernel = self.param("query_kernel", xavier_uniform(0, 1), (self.query_size, size))
        self.memory_kernel = self.param("memory_kernel", xavier_uniform(0, 1), (self.memory_size, size))
        self.vector = self.param("vector", nn.initializers.normal(size**-0.5), (size,))
        if self.is_normalized:
            self.gain = self.param("gain", nn.initializers.constant(size**-0.5), ())
            self.bias = self.param("bias", nn.initializers.zeros, (size,))

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """U h."""
        return einsum("BME,EA->BMA", memory, self.memory_kernel, self.precision)

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        """Scores of every query and key."""
        projected = einsum("BQD,DA->BQA", query, self.query_kernel, self.precision)
        if self.is_normalized:
            return normalized_additive_scores(projected, keys, self.vector, self.gain, self.bias)
        return additive_scores(projected, keys, self.vector)
