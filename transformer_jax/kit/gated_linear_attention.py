"""Gated linear attention with one gate a head (Yang et al. 2024)."""

from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.config.checks import setting
from transformer_jax.layers.mixer import Mixer, linear_recurrence
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.precision import biased_einsum, einsum
from transformer_jax.registry.plugins import register

register("sharding", r"attention/gate_bias$")(PartitionSpec("tensor"))


@dataclass(frozen=True)
class GatedLinearAttentionSettings:
    temperature: float = setting(16.0, "tau: the gates are sigmoids to the power 1 / tau.", program="traced")
    chunk: int = setting(64, "Positions of a chunk, inside of which all pairs are computed; the result is the same.")


class LinearAttention(Mixer):
    """A mixer with H heads of queries, keys and values and a state [H, K, U], run in chunks."""

    def setup(self) -> None:
        sizes = {"query": self.key_size, "key": self.key_size, "value": self.value_size}
        shapes = {name: (self.d_model, self.num_heads, size) for name, size in sizes.items()}
        self.kernels = [self.param(name, xavier_uniform(0, (1, 2)), shape) for name, shape in shapes.items()]
        shape = self.num_heads, self.value_size, self.d_model
        self.output_kernel = self.param("output", xavier_uniform((0, 1), 2), shape)

    @property
    def state_shape(self) -> tuple[int, ...]:
        return self.num_heads, self.key_size, self.value_size

    def in_chunks(self, inputs: Float[Array, "B L D"], segments: Int[Array, "B L"]) -> list[Array]:
        """Return ``segments`` and the arrays of ``_project``, [B, N, C, ...]."""
        size = min(self.settings.chunk, inputs.shape[1])
        # Padding on the left, so that the last state is the state after the last position.
        before = ((0, 0), (-inputs.shape[1] % size, 0))
        padded = jnp.pad(segments, before), *self._project(jnp.pad(inputs, (*before, (0, 0))))
        return [array.reshape(len(inputs), -1, size, *array.shape[2:]) for array in padded]

    def _project(self, inputs: Float[Array, "B L D"]) -> tuple[Array, ...]:
        """Return queries, keys, values [B, L, H, ...], and further arrays [B, L, H], float32."""
        raise NotImplementedError


@register("mixer", "gated_linear_attention", settings=GatedLinearAttentionSettings)
class GatedLinearAttention(LinearAttention):
    """S_t = g_t S_{t-1} + k_t v_t^T, o_t = norm(S_t^T q_t), g_t = sigmoid(W_g x_t + b_g)^(1 / tau).

    Equations 3 and 4. Departures: g is one number a head as in Mamba-2 (Dao and Gu 2024), the norm
    is a root mean square without parameters, and there is no output gate. Parameters: ``query``,
    ``key`` [D, H, K], ``value`` [D, H, U], ``output`` [H, U, D], ``gate_kernel`` [D, H],
    ``gate_bias`` [H]. The state S is float32.
    """

    def setup(self) -> None:
        super().setup()
        self.gate_kernel = self.param("gate_kernel", xavier_uniform(0, 1), (self.d_model, self.num_heads))
        self.gate_bias = self.param("gate_bias", nn.initializers.zeros, (self.num_heads,))

    def run(self, inputs: Float[Array, "B L D"], segments: Int[Array, "B L"]) -> tuple[Array, Array]:
        """Compute all pairs inside a chunk, and a recurrence over chunks (section 4)."""
        rows, length, _ = inputs.shape
        segments, query, key, value, log_gate = self.in_chunks(inputs, segments)
        size = segments.shape[2]
        first, last = jnp.pad(segments[:, :-1, -1], ((0, 0), (1, 0))), segments[:, :, -1]
        total, precision = jnp.cumsum(log_gate, axis=2), self.precision.float32_output
        is_visible = (segments[..., None] == segments[:, :, None]) & jnp.tril(jnp.ones((1, 1, size, size), bool))
        by_head = jnp.swapaxes(total, 2, 3)
        decay = jnp.where(is_visible[:, :, None], by_head[..., None] - by_head[..., None, :], -jnp.inf)
        scores = einsum("BNTHK,BNSHK->BNHTS", query, key, precision) * jnp.exp(decay)
        heads = einsum("BNHTS,BNSHU->BNTHU", scores, value, precision)

        to_end = jnp.where((segments == last[..., None])[..., None], total[:, :, -1:] - total, -jnp.inf)
        update = einsum("BNSHK,BNSHU->BNHKU", key * jnp.exp(to_end)[..., None], value, precision)
        states = linear_recurrence(jnp.exp(total[:, :, -1])[..., None, None], update, last)
        earlier = jnp.pad(states[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0), (0, 0)))
        from_start = jnp.where((segments == first[..., None])[..., None], total, -jnp.inf)
        heads += einsum("BNTHK,BNHKU->BNTHU", query * jnp.exp(from_start)[..., None], earlier, precision)
        heads = heads.reshape(rows, -1, self.num_heads, self.value_size)[:, -length:]
        return self._merge(heads), states[:, -1]

    def advance(self, inputs: Float[Array, "B W D"], states: Float[Array, "B W H K U"]) -> tuple[Array, Array]:
        query, key, value, log_gate = self._project(inputs)
        states = jnp.exp(log_gate)[..., None, None] * states
        states += einsum("BWHK,BWHU->BWHKU", key, value, self.precision.float32_output)
        return self._merge(einsum("BWHK,BWHKU->BWHU", query, states, self.precision.float32_output)), states

    def _project(self, inputs: Float[Array, "B L D"]) -> tuple[Array, Array, Array, Array]:
        """Return q, k K^-1/2, v [B, L, H, ...], and logarithms of the gates [B, L, H], float32."""
        precision = self.precision.float32_output
        query, key, value = (einsum("BLD,DHK->BLHK", inputs, kernel, precision) for kernel in self.kernels)
        gate = nn.log_sigmoid(biased_einsum("BLD,DH->BLH", inputs, self.gate_kernel, self.gate_bias, precision))
        return query, key * self.key_size**-0.5, value, gate / self.settings.temperature

    def _merge(self, heads: Float[Array, "B L H U"]) -> Float[Array, "B L D"]:
        """Divide heads by their root mean square, and multiply them by ``output``."""
        heads *= (jnp.mean(heads**2, axis=-1, keepdims=True) + 1e-5) ** -0.5
        return einsum("BLHU,HUD->BLD", heads, self.output_kernel, self.precision)
