"""Differential attention: the difference of two softmaxes cancels noise (Ye et al. 2025)."""

import math
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.config import ConfigError
from transformer_jax.config.checks import setting
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.registry.plugins import register

EPSILON = 1e-5


@dataclass(frozen=True)
class DifferentialSettings:
    initial_factor: float = setting(0.0, "Initial lambda; 0: 0.8 - 0.6 exp(-0.3 layer).", at_least=0, below=1)


@register("attention", "differential", settings=DifferentialSettings)
class DifferentialAttention(AttentionChange):
    """(softmax(Q1 K1ᵀ / sqrt(K)) - lambda softmax(Q2 K2ᵀ / sqrt(K))) V for pairs of heads.

    Equations 1 to 3. Heads 2 j and 2 j + 1 are Q1, K1 and Q2, K2 of head j of the paper, and their
    values side by side are its V of size 2 U. A root mean square norm of the difference, with the
    gain ``gain`` [2 U], and the factor 1 - initial lambda follow. ``lambda_query`` and
    ``lambda_key`` [2, K]. The recorded weights come from the two softmaxes. With grouped queries K1
    and K2 may be the keys of one head, as in the authors' code.
    """

    def setup(self) -> None:
        normal, shape = nn.initializers.normal(0.1), (2, self.key_size)
        self.lambda_query = self.param("lambda_query", normal, shape)
        self.lambda_key = self.param("lambda_key", normal, shape)
        self.gain = self.param("gain", nn.initializers.ones, (2 * self.value_size,))

    def values(self, value_BGMU: Float[Array, "B G M U"], positions: Int[AnyArray, "B M"]) -> Float[Array, "B V M X"]:
        rows, groups, length, size = value_BGMU.shape
        if groups % 2:
            raise ConfigError("model.attention", f"differential needs pairs of key-value heads, not {groups}")
        pairs = value_BGMU.reshape(rows, groups // 2, 2, length, size)
        return jnp.swapaxes(pairs, 2, 3).reshape(rows, groups // 2, length, 2 * size)

    def heads(self, heads_BHQU: Float[Array, "B H Q X"], inputs: Float[Array, "B Q D"]) -> Float[Array, "B H Q U"]:
        rows, heads, length, _ = heads_BHQU.shape
        initial = self.settings.initial_factor or 0.8 - 0.6 * math.exp(-0.3 * self.site.layer)
        first, second = jnp.exp(jnp.sum(self.lambda_query * self.lambda_key, axis=-1))
        pairs = heads_BHQU.astype(jnp.float32).reshape(rows, heads // 2, 2, length, -1)
        difference = pairs[:, :, 0] - (first - second + initial) * pairs[:, :, 1]
        inverse_rms = lax.rsqrt(jnp.mean(difference**2, axis=-1, keepdims=True) + EPSILON)
        normalized = difference * inverse_rms * ((1 - initial) * self.gain)[None, None, None]
        halves = normalized.reshape(rows, heads // 2, length, 2, -1)
        return jnp.swapaxes(halves, 2, 3).reshape(rows, heads, length, -1).astype(heads_BHQU.dtype)
