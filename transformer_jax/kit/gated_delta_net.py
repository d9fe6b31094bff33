"""Gated delta networks: linear attention that overwrites its state (Yang et al. 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.config.checks import setting
from transformer_jax.kit.gated_linear_attention import LinearAttention
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.precision import biased_einsum, einsum
from transformer_jax.registry.plugins import register

register("sharding", r"attention/output_gate$")(PartitionSpec("fsdp", "tensor", None))
register("sharding", r"attention/(strength|decay)_kernel$")(PartitionSpec("fsdp", "tensor"))
register("sharding", r"attention/(decay_bias|log_rate)$")(PartitionSpec("tensor"))
register("sharding", r"attention/head_scale$")(PartitionSpec())


@dataclass(frozen=True)
class GatedDeltaNetSettings:
    chunk: int = setting(64, "Positions of a chunk, which are computed at once; the result is the same.")


@register("mixer", "gated_delta_net", settings=GatedDeltaNetSettings)
class GatedDeltaNet(LinearAttention):
    """S_t = a_t (1 - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T, o_t = S_t^T q_t, with decays a_t.

    Gated DeltaNet, equation 10. q, k of unit norm and v are SiLU of projections, b_t = sigmoid(W_b
    x_t), a_t = exp(-e^r softplus(W_a x_t + c)), and the output is RMSNorm(o_t) SiLU(W_g x_t) times
    W^O (figure 1). Departure: no short convolutions of q, k and v. Parameters: ``query``, ``key``
    [D, H, K], ``value``, ``output_gate`` [D, H, U], ``output`` [H, U, D], ``strength_kernel``,
    ``decay_kernel`` [D, H], ``decay_bias``, ``log_rate`` [H], ``head_scale`` [U]. The state S is
    float32.
    """

    def setup(self) -> None:
        super().setup()
        shape = self.d_model, self.num_heads, self.value_size
        self.output_gate = self.param("output_gate", xavier_uniform(0, (1, 2)), shape)
        self.strength_kernel = self.param("strength_kernel", xavier_uniform(0, 1), shape[:2])
        self.decay_kernel = self.param("decay_kernel", xavier_uniform(0, 1), shape[:2])
        self.decay_bias = self.param("decay_bias", initial_decay_bias, (self.num_heads,))
        self.log_rate = self.param("log_rate", initial_log_rate, (self.num_heads,))
        self.head_scale = self.param("head_scale", nn.initializers.ones, (self.value_size,))

    def run(self, inputs: Float[Array, "B L D"], segments: Int[Array, "B L"]) -> tuple[Array, Array]:
        """Run chunks of C positions, one after the other (section 3.3)."""
        rows, length, _ = inputs.shape
        chunks = [jnp.moveaxis(array, 1, 0) for array in self.in_chunks(inputs, segments)]
        start = jnp.zeros((rows, *self.state_shape)), jnp.zeros((rows,), segments.dtype)
        (state, _), heads = lax.scan(self._run_chunk, start, chunks)
        heads = jnp.moveaxis(heads, 0, 1).reshape(rows, -1, self.num_heads, self.value_size)[:, -length:]
        return self._merge(heads, inputs), state

    def _run_chunk(self, earlier: tuple[Array, Array], chunk: Sequence[Array]) -> tuple[tuple[Array, Array], Array]:
        """Return state and segment after a chunk, and its heads [B, C, H, U]."""
        (state, segment), (segments, query, key, value, log_decay, strength) = earlier, chunk
        total, precision, is_token = jnp.cumsum(log_decay, axis=1), self.precision.float32_output, segments != 0
        causal = jnp.tril(jnp.ones((1, *[segments.shape[1]] * 2), bool))
        is_visible = (segments[:, :, None] == segments[:, None]) & causal
        by_head = jnp.swapaxes(total, 1, 2)
        decay = jnp.exp(jnp.where(is_visible[:, None], by_head[..., None] - by_head[:, :, None], -jnp.inf))
        # Positions of a sentence that began in an earlier chunk.
        continues = is_token & (segments == segment[:, None])
        from_start = jnp.where(continues[..., None], jnp.exp(total), 0.0)[..., None]
        missing = value - einsum("BSHK,BHKU->BSHU", key * from_start, state, precision)
        # A position writes its value minus the one that the state holds for its key, after all
        # earlier positions of the chunk.
        products = einsum("BTHK,BSHK->BHTS", key * strength[..., None], key, precision) * decay
        missing = jnp.swapaxes(strength[..., None] * missing, 1, 2)
        written = lax.linalg.triangular_solve(products, missing, left_side=True, lower=True, unit_diagonal=True)
        heads = einsum("BTHK,BHKU->BTHU", query * from_start, state, precision)
        scores = einsum("BTHK,BSHK->BHTS", query, key, precision) * decay
        heads += einsum("BHTS,BHSU->BTHU", scores, written, precision)

        reaches_end = (is_token & (segments == segments[:, -1:]))[..., None]
        to_end = jnp.exp(jnp.where(reaches_end, total[:, -1:] - total, -jnp.inf))[..., None]
        state = from_start[:, -1, :, :, None] * state
        state += einsum("BSHK,BHSU->BHKU", key * to_end, written, precision)
        return (state, segments[:, -1]), heads

    def advance(self, inputs: Float[Array, "B W D"], states: Float[Array, "B W H K U"]) -> tuple[Array, Array]:
        query, key, value, log_decay, strength = self._project(inputs)
        precision, states = self.precision.float32_output, jnp.exp(log_decay)[..., None, None] * states
        written = strength[..., None] * (value - einsum("BWHK,BWHKU->BWHU", key, states, precision))
        states += einsum("BWHK,BWHU->BWHKU", key, written, precision)
        return self._merge(einsum("BWHK,BWHKU->BWHU", query, states, precision), inputs), states

    def _project(self, inputs: Float[Array, "B L D"]) -> tuple[Array, Array, Array, Array, Array]:
        """Return q K^-1/2, k, v [B, L, H, ...], log decays and strengths [B, L, H], float32."""
        precision = self.precision.float32_output
        query, key, value = (nn.silu(einsum("BLD,DHK->BLHK", inputs, kernel, precision)) for kernel in self.kernels)
        step = nn.softplus(biased_einsum("BLD,DH->BLH", inputs, self.decay_kernel, self.decay_bias, precision))
        strength = nn.sigmoid(einsum("BLD,DH->BLH", inputs, self.strength_kernel, precision))
        log_decay = -jnp.exp(self.log_rate)[None, None] * step
        return unit_norm(query) * self.key_size**-0.5, unit_norm(key), value, log_decay, strength

    def _merge(self, heads: Float[Array, "B L H U"], inputs: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        """Multiply the normed and gated heads by ``output``."""
        gate = nn.silu(einsum("BLD,DHU->BLHU", inputs, self.output_gate, self.precision.float32_output))
        heads *= self.head_scale[None, None, None] * (jnp.mean(heads**2, axis=-1, keepdims=True) + 1e-5) ** -0.5
        return einsum("BLHU,HUD->BLD", heads * gate, self.output_kernel, self.precision)


def unit_norm(vectors: Float[Array, "B L H K"]) -> Float[Array, "B L H K"]:
    return vectors * (jnp.sum(vectors**2, axis=-1, keepdims=True) + 1e-6) ** -0.5


def initial_log_rate(key: Array, shape: tuple[int, ...]) -> Array:
    """Return logarithms of rates between 1 and 16, as in Mamba-2 (Dao and Gu 2024)."""
    return jnp.log(jax.random.uniform(key, shape, minval=1.0, maxval=16.0))


def initial_decay_bias(key: Array, shape: tuple[int, ...]) -> Array:
    """Return biases whose softplus is between 0.001 and 0.1, log-uniform, as in Mamba-2."""
    step = jnp.exp(jax.random.uniform(key, shape, minval=jnp.log(0.001), maxval=jnp.log(0.1)))
    return step + jnp.log(-jnp.expm1(-step))
