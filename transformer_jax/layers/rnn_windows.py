"""Where a query may look, and what it expects there: the whole source, or the windows of Luong et al. 2015, section 3.2."""

from typing import NamedTuple, Protocol

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float, Int
from transformer_jax.layers.attention_windows import (
    gaussian_scores,
    monotonic_centers,
    predicted_centers,
    window_mask,
)
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.mixed_precision import contract


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
    dtype: str = "float32"

    def setup(self) -> None:
        size = self.query_size, self.attention_size
        self.position_kernel = self.param("position_kernel", xavier_uniform(0, 1), size)
        initial = nn.initializers.normal(self.attention_size**-0.5)
        self.position_vector = self.param("position_vector", initial, (self.attention_size,))

    def __call__(
        self, query: Float[Array, "B Q D"], positions: Int[Array, "B Q"], memory_mask: Bool[Array, "B M"]
    ) -> View:
        """A view of at most 2 ``half_width`` + 1 places."""
        projected = contract("BQD,DA->BQA", query, self.position_kernel, self.dtype)
        centers = predicted_centers(projected, self.position_vector, jnp.sum(memory_mask, axis=1))
        mask = window_mask(centers, self.half_width, memory_mask)
        return View(mask, gaussian_scores(centers, self.half_width, memory_mask))
