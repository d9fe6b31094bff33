"""The attention models before the Transformer, as modules.

The memory is read once a sentence (``prepare``); queries are positions or beams; what an attention remembers from one step to
the next is a state that comes in and goes out.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float, Int, PyTree
from transformer_jax.layers.attention_scores import Normalizer, Score, attend, location_based_scores, masked_softmax
from transformer_jax.layers.attention_windows import Window, location_features, location_sensitive_scores
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.precision import FLOAT32, Precision, einsum


class Prepared(NamedTuple):
    """The memory of a sentence: projected ``keys`` [B, M, ...], ``values`` [B, M, E] and ``mask`` [B, M], True on tokens."""

    keys: Array
    values: Float[Array, "B M E"]
    mask: Bool[Array, "B M"]


class Attended(NamedTuple):
    """Result of attention: ``context`` [B, Q, E], ``weights`` [B, Q, M], and the state carried to the next step."""

    context: Float[Array, "B Q E"]
    weights: Float[Array, "B Q M"]
    state: PyTree


class ContentAttention(nn.Module):
    """A score of the content inside a window (Bahdanau et al. 2015; Luong et al. 2015)."""

    make_score: Callable[[], Score]
    make_window: Callable[[], Window]
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.score = self.make_score()
        self.window = self.make_window()

    def prepare(self, memory: Float[Array, "B M E"], mask: Bool[Array, "B M"]) -> Prepared:
        """The score's keys."""
        return Prepared(self.score.keys(memory), memory, mask)

    def start(self, prepared: Prepared, queries: int) -> PyTree:
        """Nothing."""
        return ()

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], prepared: Prepared, state: PyTree
    ) -> Attended:
        """Attends from each query inside its window."""
        view = self.window(query, positions, prepared.mask)
        scores = self.score(query, prepared.keys) + view.scores
        return Attended(*attend(scores, prepared.values, view.mask, precision=self.precision), state)


class LocationBasedAttention(nn.Module):
    """Weights from the query alone, softmax(W q) (Luong et al. 2015, section 3.1). Parameter: ``kernel`` [D, P]."""

    query_size: int
    max_positions: int
    precision: Precision = FLOAT32

    def setup(self) -> None:
        self.kernel = self.param("kernel", xavier_uniform(0, 1), (self.query_size, self.max_positions))

    def prepare(self, memory: Float[Array, "B M E"], mask: Bool[Array, "B M"]) -> Prepared:
        """Places beyond ``max_positions`` are not attended to."""
        within = jnp.arange(mask.shape[1])[None, :] < self.max_positions
        return Prepared(memory, memory, mask & within)

    def start(self, prepared: Prepared, queries: int) -> PyTree:
        """Nothing."""
        return ()

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], prepared: Prepared, state: PyTree
    ) -> Attended:
        """Attends from each query."""
        scores = location_based_scores(query, self.kernel, prepared.mask.shape[1], self.precision)
        return Attended(*attend(scores, prepared.values, prepared.mask[:, None], precision=self.precision), state)


class LocationSensitiveAttention(nn.Module):
    """Additive attention with features of its previous weights (Chorowski et al. 2015, section 2.2).

    The state is the weights of the previous step, or with ``is_cumulative`` the sum of all before. Parameters: ``query_kernel``
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
        """V h."""
        return Prepared(einsum("BME,EA->BMA", memory, self.memory_kernel, self.precision), memory, mask)

    def start(self, prepared: Prepared, queries: int) -> Float[Array, "B Q M"]:
        """No weight anywhere yet."""
        rows, places = prepared.mask.shape
        return jnp.zeros((rows, queries, places), jnp.float32)

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


RnnAttention = ContentAttention | LocationBasedAttention | LocationSensitiveAttention
"""Attention of an RNN decoder: ``prepare`` once a sentence, ``start`` once a decoding, and a call for every step."""
