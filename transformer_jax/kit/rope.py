"""Rotary positions: RoFormer (Su et al. 2021)."""

from dataclasses import dataclass

import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.config import ConfigError
from transformer_jax.config.checks import setting
from transformer_jax.layers.modified_attention import SelfAttentionChange
from transformer_jax.registry.plugins import register


@dataclass(frozen=True)
class RopeSettings:
    base: float = setting(10_000.0, "Base of the wavelengths, which go from 2 pi to 2 pi base.", program="traced")
    share: float = setting(1.0, "Share of the dimensions of a head that are rotated, from the first on.", at_most=1)


@register("positions", "rope", settings=RopeSettings)
class RotaryPositions(SelfAttentionChange):
    """Queries and keys rotated by their position, so that scores depend on distances (equation 34).

    The pairs of dimensions are the paper's, (0, 1), (2, 3) ... GPT-NeoX and Llama pair dimension i
    with i + K / 2.
    """

    def queries(self, query_BHQK: Float[Array, "B H Q K"], positions: Int[AnyArray, "B Q"]) -> Float[Array, "B H Q K"]:
        return self._rotated(query_BHQK, positions)

    def keys(self, key_BGMK: Float[Array, "B G M K"], positions: Int[AnyArray, "B M"]) -> Float[Array, "B G M K"]:
        return self._rotated(key_BGMK, positions)

    def _rotated(self, vectors: Float[Array, "B H L K"], positions: Int[AnyArray, "B L"]) -> Float[Array, "B H L K"]:
        share = self.settings.share
        num_pairs = int(self.key_size * share) // 2
        if num_pairs <= 0:
            problem = f"{share:g} of {self.key_size} dimensions is less than a pair"
            raise ConfigError(f"parts.{self.site.part}.share", problem)
        in_part = rotated(vectors[..., : 2 * num_pairs], positions, self.settings.base)
        return jnp.concatenate([in_part, vectors[..., 2 * num_pairs :]], axis=-1)


def rotated(
    vectors: Float[Array, "B H L K"], positions: Int[AnyArray, "B L"], base: Array | float
) -> Float[Array, "B H L K"]:
    """Rotate every pair of dimensions by its angle at a position."""
    num_pairs = vectors.shape[-1] // 2
    frequencies = base ** (-jnp.arange(num_pairs) / num_pairs)
    angles = jnp.asarray(positions)[:, None, :, None] * frequencies[None, None, None]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    pairs = vectors.reshape(*vectors.shape[:-1], num_pairs, 2).astype(jnp.float32)
    first, second = pairs[..., 0], pairs[..., 1]
    in_pairs = jnp.stack([first * cos - second * sin, first * sin + second * cos], axis=-1)
    return in_pairs.reshape(vectors.shape).astype(vectors.dtype)
