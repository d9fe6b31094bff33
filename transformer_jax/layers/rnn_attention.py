"""The attention models before the Transformer.

The memory [B, M, E] is read once a sentence (``prepare``). Queries [B, Q, D] are positions, or the
beams of a decoding step. Scores are [B, Q, M]. A state passes from one step to the next.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, Int, PyTree
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.layers.scaled_dot_product import MASKED_SCORE
from transformer_jax.precision import FLOAT32, Precision, einsum

Normalizer = Callable[[Array, Array], Array]
"""From scores and a mask [B, Q, M] to weights."""


def masked_softmax(scores: Float[Array, "B Q M"], mask: Bool[Array, "B Q M"]) -> Float[Array, "B Q M"]:
    """Return the float32 softmax over the visible keys, or zeros if there are none."""
    weights = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), MASKED_SCORE), axis=-1)
    return jnp.where(mask, weights, 0.0)


def sharpened_softmax(
    scores: Float[Array, "B Q M"], mask: Bool[Array, "B Q M"], *, sharpness: float
) -> Float[Array, "B Q M"]:
    """Return the softmax of the scores times ``sharpness`` (Chorowski et al. 2015, section 2.3)."""
    return masked_softmax(sharpness * scores, mask)


def smoothed_sigmoid(scores: Float[Array, "B Q M"], mask: Bool[Array, "B Q M"]) -> Float[Array, "B Q M"]:
    """Return sigmoids over their sum: several keys can be strong (Chorowski et al. 2015)."""
    # From the logarithm, so that weights of very small sigmoids still sum to one.
    return masked_softmax(jax.nn.log_sigmoid(scores.astype(jnp.float32)), mask)


def attend(
    scores_BQM: Float[Array, "B Q M"],
    value_BMU: Float[Array, "B M U"],
    mask_BQM: Bool[Array, "#B #Q M"],
    *,
    normalize: Normalizer = masked_softmax,
    precision: Precision = FLOAT32,
) -> tuple[Float[Array, "B Q U"], Float[Array, "B Q M"]]:
    """Return the expected values and the weights (Bahdanau et al. 2015, equations 5 and 6)."""
    weights_BQM = normalize(scores_BQM, jnp.broadcast_to(mask_BQM, scores_BQM.shape))
    return einsum("BQM,BMU->BQU", weights_BQM, value_BMU, precision), weights_BQM


class Score(nn.Module):
    """A content-based score of queries [B, Q, D] and ``keys``: [B, Q, M]."""

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """Return the part of the score that depends on the memory alone."""
        return memory


class DotScore(Score):
    """q · h (Luong et al. 2015, section 3.1), over sqrt(D) if ``is_scaled``; D = E."""

    is_scaled: bool = False
    precision: Precision = FLOAT32

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        if self.is_scaled:
            query *= query.shape[-1] ** -0.5
        return einsum("BQD,BMD->BQM", query, keys, self.precision)


class GeneralScore(Score):
    """q W h (Luong et al. 2015, section 3.1). Parameter: ``kernel`` [D, E]."""

    query_size: int
    memory_size: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.kernel = self.param("kernel", xavier_uniform(0, 1), (self.query_size, self.memory_size))

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        projected_BQE = einsum("BQD,DE->BQE", query, self.kernel, self.precision)
        return einsum("BQE,BME->BQM", projected_BQE, keys, self.precision)


class AdditiveScore(Score):
    """v · tanh(W q + U h) (Bahdanau et al. 2015, appendix A.1.2).

    The score ``concat`` of Luong et al. 2015 (section 3.1), v · tanh(W [q; h]), is the same with
    the two halves of W. ``is_normalized``: g v / |v| · tanh(W q + U h + b) (Salimans and Kingma
    2016, equation 2), as in the public implementation of Luong et al. 2017 (tensorflow/nmt,
    ``normed_bahdanau``). Parameters: ``query_kernel`` [D, A], ``memory_kernel`` [E, A], ``vector``
    [A], and if normalized ``gain`` and ``bias`` [A].
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

    def keys(self, memory: Float[Array, "B M E"]) -> Float[Array, "B M A"]:
        return einsum("BME,EA->BMA", memory, self.memory_kernel, self.precision)

    def __call__(self, query: Float[Array, "B Q D"], keys: Float[Array, "B M A"]) -> Float[Array, "B Q M"]:
        query_BQA, vector_A = einsum("BQD,DA->BQA", query, self.query_kernel, self.precision), self.vector
        if self.is_normalized:
            query_BQA += self.bias[None, None, :]
            vector_A = self.gain * (vector_A / jnp.linalg.norm(vector_A))
        hidden_BQMA = jnp.tanh(query_BQA[:, :, None, :] + keys[:, None, :, :])
        return jnp.einsum("BQMA,A->BQM", hidden_BQMA, vector_A, precision=self.precision.product)


class View(NamedTuple):
    """A window's ``mask`` [B, Q or 1, M] of the memory, and ``scores`` to add to the content's."""

    mask: Bool[Array, "B #Q M"]
    scores: Float[Array, "#B #Q #M"]


class WholeSource(nn.Module):
    """Global attention: every token (Bahdanau et al. 2015; Luong et al. 2015, section 3.1)."""

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        return View(memory_mask[:, None], jnp.zeros((1, 1, 1)))


class MonotonicWindow(nn.Module):
    """``half_width`` positions around p = t inside the source (Luong et al. 2015, local-m)."""

    half_width: int

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        last_B1 = jnp.sum(memory_mask, axis=1)[:, None] - 1
        distance_BQM = source_distance(jnp.minimum(positions, last_B1).astype(jnp.float32), memory_mask.shape[1])
        return View(window_mask(distance_BQM, self.half_width, memory_mask), jnp.zeros((1, 1, 1)))


class PredictedWindow(nn.Module):
    """``half_width`` positions s around a predicted center p, with a Gaussian (local-p).

    p = S · sigmoid(v · tanh(W q)) (Luong et al. 2015, equation 9), with S - 1 instead of S: it is a
    source position, counted from 0. The paper multiplies the normalized weights by exp(-(s - p)^2 /
    (2 sigma^2)), sigma = D / 2 (equation 10). Added to the scores, the exponent gives the same
    weights up to a factor, and they sum to one. Parameters: ``position_kernel`` [D, A] and
    ``position_vector`` [A].
    """

    half_width: int
    query_size: int
    attention_size: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        size = self.query_size, self.attention_size
        self.position_kernel = self.param("position_kernel", xavier_uniform(0, 1), size)
        initial = nn.initializers.normal(self.attention_size**-0.5)
        self.position_vector = self.param("position_vector", initial, (self.attention_size,))

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        hidden_BQA = jnp.tanh(einsum("BQD,DA->BQA", query, self.position_kernel, self.precision))
        product = self.precision.product
        share_BQ = jax.nn.sigmoid(jnp.einsum("BQA,A->BQ", hidden_BQA, self.position_vector, precision=product))
        last_B1 = (jnp.sum(memory_mask, axis=1)[:, None] - 1).astype(jnp.float32)
        distance_BQM = source_distance(share_BQ * last_B1, memory_mask.shape[1])
        gaussian_BQM = -(distance_BQM**2) / (2 * (self.half_width / 2) ** 2)
        return View(window_mask(distance_BQM, self.half_width, memory_mask), gaussian_BQM)


def source_distance(centers_BQ: Float[Array, "B Q"], length: int) -> Float[Array, "B Q M"]:
    return jnp.arange(length, dtype=jnp.float32)[None, None, :] - centers_BQ[:, :, None]


def window_mask(
    distance_BQM: Float[Array, "B Q M"], half_width: int, memory_mask: Bool[Array, "B M"]
) -> Bool[Array, "B Q M"]:
    """Return True within [p - D, p + D] and inside the source (Luong et al. 2015, section 3.2)."""
    return (jnp.abs(distance_BQM) <= half_width) & memory_mask[:, None, :]


class Prepared(NamedTuple):
    """Projected ``keys`` [B, M, ...], ``values`` [B, M, E] and ``mask`` [B, M] of a memory."""

    keys: Array
    values: Float[Array, "B M E"]
    mask: Bool[Array, "B M"]


class Attended(NamedTuple):
    """``context`` [B, Q, E], ``weights`` [B, Q, M], and the state for the next step."""

    context: Float[Array, "B Q E"]
    weights: Float[Array, "B Q M"]
    state: PyTree


class RnnAttention(nn.Module):
    """Attention of an RNN decoder: ``prepare`` once a sentence, ``start`` once a decoding.

    A call, at every step, takes queries [B, Q, D], their positions [B, Q] in the target, the
    prepared memory and the state.
    """

    def prepare(self, memory: Float[Array, "B M E"], mask: Bool[Array, "B M"]) -> Prepared:
        return Prepared(memory, memory, mask)

    def start(self, prepared: Prepared, queries: int) -> PyTree:
        return ()


class ContentAttention(RnnAttention):
    """A score of the content inside a window (Bahdanau et al. 2015; Luong et al. 2015)."""

    make_score: Callable[[], nn.Module]
    make_window: Callable[[], nn.Module]
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.score = self.make_score()
        self.window = self.make_window()

    def prepare(self, memory: Float[Array, "B M E"], mask: Bool[Array, "B M"]) -> Prepared:
        return Prepared(self.score.keys(memory), memory, mask)

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], prepared: Prepared, state: PyTree
    ) -> Attended:
        view = self.window(query, positions, prepared.mask)
        scores = self.score(query, prepared.keys) + view.scores
        return Attended(*attend(scores, prepared.values, view.mask, precision=self.precision), state)


class LocationBasedAttention(RnnAttention):
    """softmax(W q), weights of positions, independent of their content (Luong et al. 2015, eq. 8).

    A shorter source uses the first of the P positions (the paper normalizes over all P); positions
    beyond P get no weight. Parameter: ``kernel`` [D, P].
    """

    query_size: int
    max_positions: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.kernel = self.param("kernel", xavier_uniform(0, 1), (self.query_size, self.max_positions))

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], prepared: Prepared, state: PyTree
    ) -> Attended:
        length = prepared.mask.shape[1]
        scores = einsum("BQD,DP->BQP", query, self.kernel, self.precision)[:, :, :length]
        scores = jnp.pad(scores, ((0, 0), (0, 0), (0, length - scores.shape[2])))
        mask = prepared.mask[:, None] & (jnp.arange(length) < self.max_positions)[None, None]
        return Attended(*attend(scores, prepared.values, mask, precision=self.precision), state)


class LocationSensitiveAttention(RnnAttention):
    """w · tanh(W q + V h + U f + b) with features f of the previous weights.

    Chorowski et al. 2015, equations 8 and 9. The state has the weights of the previous step, or the
    sum of all steps if ``is_cumulative``. Parameters: ``query_kernel`` [D, A], ``memory_kernel``
    [E, A], ``filters`` [R, C], ``feature_kernel`` [C, A], ``vector`` and ``bias`` [A].
    """

    query_size: int
    memory_size: int
    attention_size: int
    num_filters: int
    filter_taps: int
    is_cumulative: bool = False
    normalize: Normalizer = masked_softmax
    precision: Precision = FLOAT32

    def setup(self) -> None:
        size, kernel = self.attention_size, xavier_uniform(0, 1)
        self.query_kernel = self.param("query_kernel", kernel, (self.query_size, size))
        self.memory_kernel = self.param("memory_kernel", kernel, (self.memory_size, size))
        self.filters = self.param("filters", kernel, (self.filter_taps, self.num_filters))
        self.feature_kernel = self.param("feature_kernel", kernel, (self.num_filters, size))
        self.vector = self.param("vector", nn.initializers.normal(size**-0.5), (size,))
        self.bias = self.param("bias", nn.initializers.zeros, (size,))

    def prepare(self, memory: Float[Array, "B M E"], mask: Bool[Array, "B M"]) -> Prepared:
        return Prepared(einsum("BME,EA->BMA", memory, self.memory_kernel, self.precision), memory, mask)

    def start(self, prepared: Prepared, queries: int) -> Float[Array, "B Q M"]:
        rows, positions = prepared.mask.shape
        return jnp.zeros((rows, queries, positions), jnp.float32)

    def __call__(
        self,
        query: Float[Array, "B Q D"],
        positions: Int[Array, "B Q"],
        prepared: Prepared,
        state: Float[Array, "B Q M"],
    ) -> Attended:
        query_BQA = einsum("BQD,DA->BQA", query, self.query_kernel, self.precision)
        product = self.precision.product
        features_BQMC = location_features(state, self.filters, product)
        features_BQMA = jnp.einsum("BQMC,CA->BQMA", features_BQMC, self.feature_kernel, precision=product)
        key_BMA, bias = prepared.keys, self.bias[None, None, None, :]
        hidden_BQMA = jnp.tanh(query_BQA[:, :, None, :] + key_BMA[:, None, :, :] + features_BQMA + bias)
        scores = jnp.einsum("BQMA,A->BQM", hidden_BQMA, self.vector, precision=product)
        mask = prepared.mask[:, None]
        context, weights = attend(scores, prepared.values, mask, normalize=self.normalize, precision=self.precision)
        return Attended(context, weights, state + weights if self.is_cumulative else weights)


def location_features(
    weights_BQM: Float[Array, "B Q M"], filters_RC: Float[Array, "R C"], product: lax.Precision | None = None
) -> Float[Array, "B Q M C"]:
    """Return C features of the weights around positions (Chorowski et al. 2015, equation 8).

    A filter has R taps, centered on the position. Weights beyond the source are zero.
    """
    taps = len(filters_RC)
    signal = weights_BQM.reshape(-1, weights_BQM.shape[2], 1)
    padding = [((taps - 1) // 2, taps // 2)]
    axes = ("NWC", "WIO", "NWC")
    features = lax.conv_general_dilated(
        signal, filters_RC[:, None, :], (1,), padding, dimension_numbers=axes, precision=product
    )
    return features.reshape(*weights_BQM.shape, -1)
