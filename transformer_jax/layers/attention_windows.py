"""Location-based attention: the windows of Luong et al. 2015 and the location features of Chorowski et al. 2015.

First as functions, then the windows as modules: a mask, and scores to add.
"""

from typing import NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Bool, Float, Int
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.precision import FLOAT32, Precision, einsum


def monotonic_centers(positions_BQ: Int[Array, "B Q"], lengths_B: Int[Array, "B"]) -> Float[Array, "B Q"]:
    """p = t (Luong et al. 2015, section 3.2, local-m), kept inside the source."""
    return jnp.minimum(positions_BQ, lengths_B[:, None] - 1).astype(jnp.float32)


def predicted_centers(
    query_BQA: Float[Array, "B Q A"], vector_A: Float[Array, "A"], lengths_B: Int[Array, "B"]
) -> Float[Array, "B Q"]:
    """p = S · sigmoid(v · tanh(W q)) of projected queries W q (Luong et al. 2015, equation 9).

    S - 1 takes the place of S, so that a center is the index, from 0, of a place inside the source.
    """
    predicted_BQ = jax.nn.sigmoid(jnp.einsum("BQA,A->BQ", jnp.tanh(query_BQA), vector_A))
    return predicted_BQ * (lengths_B[:, None] - 1).astype(jnp.float32)


def window_mask(
    centers_BQ: Float[Array, "B Q"], half_width: int, memory_mask_BM: Bool[Array, "B M"]
) -> Bool[Array, "B Q M"]:
    """True within [p - D, p + D] and inside the source (Luong et al. 2015, section 3.2).

    For centers 0 and 2, D = 1 and a source of four with a fifth place of padding::

        [[1, 1, 0, 0, 0],
         [0, 1, 1, 1, 0]]
    """
    distance_BQM = jnp.abs(_places(memory_mask_BM) - centers_BQ[:, :, None])
    return (distance_BQM <= half_width) & memory_mask_BM[:, None, :]


def gaussian_scores(
    centers_BQ: Float[Array, "B Q"], half_width: int, memory_mask_BM: Bool[Array, "B M"]
) -> Float[Array, "B Q M"]:
    """-(s - p)^2 / (2 sigma^2) with sigma = D / 2, to be added to the scores of local-p (Luong et al. 2015, equation 10).

    The paper multiplies the normalized weights by exp of this and leaves their sum below one; added to the scores instead, the
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


class View(NamedTuple):
    """``mask`` [B, Q or 1, M], True where a query may look, and ``scores``, to be added to those of the content."""

    mask: Bool[Array, "B Q M"]
    scores: Float[Array, "#B #Q #M"]


class Window(Protocol):
    """Gives each query its view of a memory whose tokens are True in ``memory_mask``."""

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        """The view of each query, which stands at ``positions`` of the target."""


class WholeSource(nn.Module):
    """Global attention: every token (Bahdanau et al. 2015; Luong et al. 2015, section 3.1)."""

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        """The same for each query."""
        return View(memory_mask[:, None], jnp.zeros((1, 1, 1)))


class MonotonicWindow(nn.Module):
    """``half_width`` places to each side of the query's own position (local-m)."""

    half_width: int

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        """A view of at most 2 ``half_width`` + 1 places."""
        centers = monotonic_centers(positions, jnp.sum(memory_mask, axis=1))
        return View(window_mask(centers, self.half_width, memory_mask), jnp.zeros((1, 1, 1)))


class PredictedWindow(nn.Module):
    """``half_width`` places to each side of a predicted one, and a Gaussian around it (local-p).

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
        """A view of at most 2 ``half_width`` + 1 places."""
        projected = einsum("BQD,DA->BQA", query, self.position_kernel, self.precision)
        centers = predicted_centers(projected, self.position_vector, jnp.sum(memory_mask, axis=1))
        mask = window_mask(centers, self.half_width, memory_mask)
        return View(mask, gaussian_scores(centers, self.half_width, memory_mask))
