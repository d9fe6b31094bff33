"""Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.config.checks import setting
from transformer_jax.layers.attention import KVCache, LayerCache, StepMask, empty_kv
from transformer_jax.layers.modified_attention import AttentionChange, ModifiedAttention
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.layers.scaled_dot_product import AttentionOptions, by_key_head, modified_attention
from transformer_jax.precision import einsum
from transformer_jax.registry.plugins import register

register("sharding", r"attention/latent_kernel$")(PartitionSpec("fsdp", None))


@dataclass(frozen=True)
class LatentSettings:
    width: int = setting(0, "Width C of the latent; 0: 4 times the size of a head.", at_least=0)


class LatentAttention(ModifiedAttention):
    """Keys W^UK c and values W^UV c of a latent c = W^DKV h, which alone is in the cache (equations 9 to 11).

    Parameters: ``latent_kernel`` [D, C], ``key`` [C, G, K], ``value`` [C, G, U], others as in ``ModifiedAttention``. The cache
    has c as ``keys`` [B, 1, C, M], and empty ``values``. W^UK is absorbed into the queries and W^UV into the output, so a step
    attends to c itself; where another part changes keys, scores or weights, a step expands all keys and values. Departures:
    no compressed queries, no norm of c, no decoupled rotary key. With model.positions=rope the expanded keys are rotated.
    """

    @property
    def memory_width(self) -> int:
        latent = next(change for change in self.changes.values() if isinstance(change, Latent))
        return latent.settings.width or 4 * self.key_size

    def setup(self) -> None:
        super().setup()
        self.latent_kernel = self.param("latent_kernel", xavier_uniform(0, 1), (self.d_model, self.memory_width))

    def empty_cache(self, rows: int, num_slots: int, beams: int) -> LayerCache:
        return LayerCache(
            empty_kv(rows, 1, self.num_kept_slots(num_slots, beams), self.memory_width, 0, self.precision)
        )

    def cache_of(self, memory: Float[Array, "B M D"], positions: Int[AnyArray, "B M"]) -> KVCache:
        latent_BCM = jnp.swapaxes(self._compressed(memory), 1, 2)[:, None].astype(self.precision.compute)
        return KVCache(latent_BCM, jnp.zeros((*latent_BCM.shape[:2], memory.shape[1], 0), latent_BCM.dtype))

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Array, Array]:
        return super().project_memory(self._compressed(memory))

    def _compressed(self, memory: Float[Array, "B M D"]) -> Float[Array, "B M C"]:
        return einsum("BMD,DC->BMC", memory, self.latent_kernel, self.precision)

    def attend(self, queries: Float[Array, "B Q D"], cache: KVCache, mask: StepMask) -> Float[Array, "B Q D"]:
        latent = jnp.swapaxes(cache.keys, 2, 3)
        changes = [each for each in self.changes.values() if type(each).keys is not AttentionChange.keys]
        if changes or self.score_mod(mask.score_mod) or self._mods("weights_mod"):
            key, value = super().project_memory(latent[:, 0])
            key = jnp.swapaxes(self._changed_keys(key, mask.key_positions), 2, 3)
            return super().attend(queries, KVCache(key, value), mask)
        query = self._changed_queries(queries, mask.query_positions)
        query_BGRK = by_key_head(query, self.num_key_value_heads) * (self.memory_width / self.key_size) ** 0.5
        absorbed = einsum("BGRK,CGK->BGRC", query_BGRK, self.key_kernel, self.precision).reshape(*query.shape[:3], -1)
        options = AttentionOptions(None, self.precision)
        heads, weights = modified_attention(absorbed, latent, latent, self._visible(mask), options)
        self.sow("intermediates", "attention_weights", weights)
        heads = einsum("BGRC,CGU->BGRU", by_key_head(heads, query_BGRK.shape[1]), self.value_kernel, self.precision)
        return self.project_output(heads.reshape(*query.shape[:3], -1))


@register("attention", "latent", settings=LatentSettings)
class Latent(AttentionChange):
    """Keys and values are projections of a narrow latent, which alone is in the cache (DeepSeek-AI 2024)."""

    attention = LatentAttention
