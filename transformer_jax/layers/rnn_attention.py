"""The attention models before the Transformer, as modules.

The memory is read once a sentence (``prepare``); queries are positions or beams. A state carries what an attention remembers
from one step to the next.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float, Int, PyTree
from transformer_jax.layers.attention_scores import (
    Normalizer,
    additive_scores,
    attend,
    dot_scores,
    gaussian_scores,
    general_scores,
    location_based_scores,
    location_features,
    location_sensitive_scores,
    masked_softmax,
    monotonic_centers,
    normalized_additive_scores,
    predicted_centers,
    scaled_dot_scores,
    window_mask,
)
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.precision import FLOAT32, Precision, einsum


class Score(nn.Module):
    """A content-based score: called with queries [B, Q, D] and ``keys``, it returns scores [B, Q, M]."""

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """The part that depends on the memory alone."""
        return memory


class DotScore(Score):
    """q · h, over sqrt(D) if ``is_scaled``; query and memory have one width (Luong et al. 2015, section 3.1)."""

    is_scaled: bool = False
    precision: Precision = FLOAT32

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        return (scaled_dot_scores if self.is_scaled else dot_scores)(query, keys, self.precision)


class GeneralScore(Score):
    """q W h (Luong et al. 2015, section 3.1). Parameter: ``kernel`` [D, E]."""

    query_size: int
    memory_size: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.kernel = self.param("kernel", xavier_uniform(0, 1), (self.query_size, self.memory_size))

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        return general_scores(query, keys, self.kernel, self.precision)


class AdditiveScore(Score):
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
        return einsum("BME,EA->BMA", memory, self.memory_kernel, self.precision)

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        projected = einsum("BQD,DA->BQA", query, self.query_kernel, self.precision)
        if self.is_normalized:
            return normalized_additive_scores(projected, keys, self.vector, self.gain, self.bias)
        return additive_scores(projected, keys, self.vector)


class View(NamedTuple):
    """A window's view of the memory: ``mask`` [B, Q or 1, M], and ``scores`` to be added to the scores of the content."""

    mask: Bool[Array, "B Q M"]
    scores: Float[Array, "#B #Q #M"]


class WholeSource(nn.Module):
    """Global attention: every token (Bahdanau et al. 2015; Luong et al. 2015, section 3.1)."""

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        return View(memory_mask[:, None], jnp.zeros((1, 1, 1)))


class MonotonicWindow(nn.Module):
    """``half_width`` positions to each side of the query's own position (local-m)."""

    half_width: int

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        centers = monotonic_centers(positions, jnp.sum(memory_mask, axis=1))
        return View(window_mask(centers, self.half_width, memory_mask), jnp.zeros((1, 1, 1)))


class PredictedWindow(nn.Module):
    """``half_width`` positions to each side of a predicted center, with a Gaussian around it (local-p).

    Parameters: ``position_kernel`` [D, A] and ``position_vector`` [A].
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
        projected = einsum("BQD,DA->BQA", query, self.position_kernel, self.precision)
        centers = predicted_centers(projected, self.position_vector, jnp.sum(memory_mask, axis=1))
        mask = window_mask(centers, self.half_width, memory_mask)
        return View(mask, gaussian_scores(centers, self.half_width, memory_mask))


class Prepared(NamedTuple):
    """The memory of a sentence: projected ``keys`` [B, M, ...], ``values`` [B, M, E] and ``mask`` [B, M], True on tokens."""

    keys: Array
    values: Float[Array, "B M E"]
    mask: Bool[Array, "B M"]


class Attended(NamedTuple):
    """Result of attention: ``context`` [B, Q, E], ``weights`` [B, Q, M], and the state for the next step."""

    context: Float[Array, "B Q E"]
    weights: Float[Array, "B Q M"]
    state: PyTree


class RnnAttention(nn.Module):
    """Attention of an RNN decoder: ``prepare`` once a sentence, ``start`` once a decoding, and a call for every step.

    A call takes queries [B, Q, D], their positions [B, Q] in the target, the prepared memory and the state.
    """

    def prepare(self, memory: Float[Array, "B M E"], mask: Bool[Array, "B M"]) -> Prepared:
        """Projects the memory."""
        return Prepared(memory, memory, mask)

    def start(self, prepared: Prepared, queries: int) -> PyTree:
        """The state before the first step."""
        return ()


class ContentAttention(RnnAttention):
    """A score of the content inside a window (Bahdanau et al. 2015; Luong et al. 2015)."""

    make_score: Callable[[], Score]
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
    """Weights from the query alone, softmax(W q) (Luong et al. 2015, section 3.1). Parameter: ``kernel`` [D, P]."""

    query_size: int
    max_positions: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.kernel = self.param("kernel", xavier_uniform(0, 1), (self.query_size, self.max_positions))

    def prepare(self, memory: Float[Array, "B M E"], mask: Bool[Array, "B M"]) -> Prepared:
        """Positions beyond ``max_positions`` are masked."""
        within = jnp.arange(mask.shape[1])[None, :] < self.max_positions
        return Prepared(memory, memory, mask & within)

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], prepared: Prepared, state: PyTree
    ) -> Attended:
        scores = location_based_scores(query, self.kernel, prepared.mask.shape[1], self.precision)
        return Attended(*attend(scores, prepared.values, prepared.mask[:, None], precision=self.precision), state)


class LocationSensitiveAttention(RnnAttention):
    """Additive attention with features of its previous weights (Chorowski et al. 2015, section 2.2).

    The state is the weights of the previous step, or the sum of all steps if ``is_cumulative``. Parameters: ``query_kernel``
    [D, A], ``memory_kernel`` [E, A], ``filters`` [R, C], ``feature_kernel`` [C, A], ``vector`` and ``bias`` [A].
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
        """Attends from each query, which has its own state."""
        projected = einsum("BQD,DA->BQA", query, self.query_kernel, self.precision)
        features = location_features(state, self.filters)
        features_BQMA = jnp.einsum("BQMC,CA->BQMA", features, self.feature_kernel)
        scores = location_sensitive_scores(projected, prepared.keys, features_BQMA, self.vector, self.bias)
        mask = prepared.mask[:, None]
        context, weights = attend(scores, prepared.values, mask, normalize=self.normalize, precision=self.precision)
        return Attended(context, weights, state + weights if self.is_cumulative else weights)
