"""Positional encodings (Vaswani et al. 2017, section 3.5)."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.config import ConfigError
from transformer_jax.layers.parameter_initialization import embedding_normal
from transformer_jax.registry.plugins import register


def sinusoid_table(length: int, d_model: int, dtype: type[np.floating] = np.float32) -> np.ndarray:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same), interleaved.

    For length 2 and width 4::

        [[0.     1.     0.     1.    ]
         [0.8415 0.5403 0.01   1.    ]]
    """
    pair = np.arange(d_model // 2)
    angles = np.arange(length)[:, None] / 10_000.0 ** (2 * pair / d_model)[None, :]
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, d_model).astype(dtype)


def fairseq_table(length: int, d_model: int) -> np.ndarray:
    """Return the sinusoids [length, D] of fairseq and M2M-100: sines, then cosines.

    Positions 0 and 1 belong to padding there. Wavelengths reach 2 pi 10000. ``d_model`` is even and
    above 2.
    """
    half = d_model // 2
    frequencies = np.exp(np.arange(half, dtype=np.float64) * -(np.log(10_000.0) / (half - 1)))
    angles = np.arange(2, length + 2)[:, None] * frequencies[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids, by default the paper's; defined for any length."""

    d_model: int
    table: Callable[[int, int], np.ndarray] = sinusoid_table

    def __call__(self, positions: Int[AnyArray, "B L"], *, length: int) -> Float[Array, "B L D"]:
        return jnp.asarray(self.table(length, self.d_model))[positions]


class NoPositions(nn.Module):
    """Zeros: no positional encoding."""

    d_model: int

    def __call__(self, positions: Int[AnyArray, "B L"], *, length: int) -> Float[Array, "B L D"]:
        return jnp.zeros((*positions.shape, self.d_model))


class LearnedPositions(nn.Module):
    """Learned vectors of positions (table 3, row E; Gehring et al. 2017)."""

    d_model: int
    max_positions: int

    def setup(self) -> None:
        self.table = self.param("table", embedding_normal(self.d_model), (self.max_positions, self.d_model))

    def __call__(self, positions: Int[AnyArray, "B L"], *, length: int) -> Float[Array, "B L D"]:
        """Return the encodings of ``positions``, all below ``length``.

        Raises ConfigError if ``length`` exceeds ``max_positions``: clamping would be silent.
        """
        if length > self.max_positions:
            problem = f"{self.max_positions} learned positions do not reach a sequence of {length}"
            remedy = "train with a larger model.max_positions or with model.positions=sinusoidal"
            raise ConfigError("model.max_positions", problem, remedy)
        return self.table[jnp.asarray(positions)]


def change_scores(positions: nn.Module) -> bool:
    """Return whether positions change the scores of all layers of their stack."""
    return hasattr(type(positions), "score_mod")


def score_mod_of(positions: nn.Module) -> Partial | None:
    """Return the change of scores that all layers of a stack share, or None."""
    return positions.score_mod() if change_scores(positions) else None


def _of_embeddings(make: Callable[[Any], nn.Module]) -> Callable[..., nn.Module | None]:
    return lambda settings, config, site: make(config) if site.kind == "embedding" else None


register("positions", "sinusoidal")(_of_embeddings(lambda config: SinusoidalPositions(config.d_model)))
register("positions", "fairseq")(_of_embeddings(lambda config: SinusoidalPositions(config.d_model, fairseq_table)))
register("positions", "learned")(_of_embeddings(lambda config: LearnedPositions(config.d_model, config.max_positions)))
register("positions", "none")(_of_embeddings(lambda config: NoPositions(config.d_model)))
