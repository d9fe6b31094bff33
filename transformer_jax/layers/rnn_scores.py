"""Content-based scores with their parameters: how well a query fits a place of the memory, by what stands there."""

from typing import Protocol

import flax.linen as nn

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.attention_scores import (
    additive_scores,
    dot_scores,
    general_scores,
    normalized_additive_scores,
    scaled_dot_scores,
)
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.mixed_precision import contract


class Score(Protocol):
    """A content-based score with its parameters."""

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """What of the score depends on the memory alone."""

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        """Scores of every query and key."""


class DotScore(nn.Module):
    """q · h, over sqrt(D) if ``is_scaled``; query and memory have one width (Luong et al. 2015, section 3.1)."""

    is_scaled: bool = False
    dtype: str = "float32"

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """The memory itself."""
        return memory

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        """Scores of every query and key."""
        return (scaled_dot_scores if self.is_scaled else dot_scores)(query, keys, self.dtype)


class GeneralScore(nn.Module):
    """q W h (Luong et al. 2015, section 3.1). Parameter: ``kernel`` [D, E]."""

    query_size: int
    memory_size: int
    dtype: str = "float32"

    def setup(self) -> None:
        self.kernel = self.param("kernel", xavier_uniform(0, 1), (self.query_size, self.memory_size))

    def keys(self, memory: Float[Array, "B M E"]) -> Array:
        """The memory itself."""
        return memory

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        """Scores of every query and key."""
        return general_scores(query, keys, self.kernel, self.dtype)


class AdditiveScore(nn.Module):
    """v · tanh(W q + U h) (Bahdanau et al. 2015, appendix A.1.2), which is also ``concat`` (Luong et al. 2015, section 3.1).

    With ``is_normalized`` v has a gain of its own and the sum a bias (Salimans and Kingma 2016). Parameters: ``query_kernel``
    [D, A], ``memory_kernel`` [E, A], ``vector`` [A]; ``gain`` and ``bias`` [A] where normalised.
    """

    query_size: int
    memory_size: int
    attention_size: int
    is_normalized: bool = False
    dtype: str = "float32"

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
        return contract("BME,EA->BMA", memory, self.memory_kernel, self.dtype)

    def __call__(self, query: Float[Array, "B Q D"], keys: Array) -> Float[Array, "B Q M"]:
        """Scores of every query and key."""
        projected = contract("BQD,DA->BQA", query, self.query_kernel, self.dtype)
        if self.is_normalized:
            return normalized_additive_scores(projected, keys, self.vector, self.gain, self.bias)
        return additive_scores(projected, keys, self.vector)
