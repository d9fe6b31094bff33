"""Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.array_types import AnyArray, Array, Float, Int
from transformer_jax.config import ConfigError
from transformer_jax.config.checks import setting
from transformer_jax.kit.rmsnorm import RMSNorm
from transformer_jax.kit.rope import rotated
from transformer_jax.layers.attention import KVCache, LayerCache, StepMask, empty_kv, project_heads
from transformer_jax.layers.modified_attention import AttentionChange, ModifiedAttention
from transformer_jax.layers.normalization import EPSILON
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.layers.scaled_dot_product import by_key_head, modified_attention
from transformer_jax.precision import einsum
from transformer_jax.registry.plugins import register

register("sharding", r"attention/((query_)?latent|rotary_key)_kernel$")(PartitionSpec("fsdp", None))
register("sharding", r"attention/rotary_query_kernel$")(PartitionSpec("fsdp", "tensor", None))


@dataclass(frozen=True)
class LatentSettings:
    """For DeepSeek-V2: ``rotary_size`` half a head, ``has_norms``, and model.positions=none."""

    width: int = setting(0, "Width C of the latent; 0: 4 times the size of a head.", at_least=0)
    query_width: int = setting(0, "Width E of the latent of the queries; 0: queries are not compressed.", at_least=0)
    rotary_size: int = setting(0, "Size R, even, of rotary queries and keys beside the heads; 0: none.", at_least=0)
    has_norms: bool = setting(False, "A root mean square norm of latents (section 3.1.2).")

    def __post_init__(self) -> None:
        if self.rotary_size % 2:
            raise ConfigError("parts.latent.rotary_size", f"{self.rotary_size} is odd, and pairs are rotated")


class LatentAttention(ModifiedAttention):
    """Keys [W^UK c; RoPE(W^KR h)] and values W^UV c of a latent c = W^DKV h (equations 9 to 19).

    Queries have a latent too. Parameters: ``latent_kernel`` [D, C], ``key`` [C, G, K], ``value``
    [C, G, U], ``query_latent_kernel`` [D, E], ``query`` [E, H, K], ``rotary_query_kernel`` [E, H,
    R] and ``rotary_key_kernel`` [D, R], others as in ``ModifiedAttention``. The cache has c and the
    rotary key, which all heads share, as ``keys`` [B, 1, C + R, M], and empty ``values``. W^UK is
    absorbed into the queries and W^UV into the output, so a step attends to c itself. If another
    part changes keys, values, scores or weights, a step expands all keys and values.
    Cross-attention has no rotary part.
    """

    @property
    def latent(self) -> "Latent":
        return next(change for change in self.changes.values() if isinstance(change, Latent))

    @property
    def query_width(self) -> int:
        return self.latent.settings.query_width or self.d_model

    @property
    def memory_width(self) -> int:
        return self.latent.settings.width or 4 * self.key_size

    @property
    def rotary_size(self) -> int:
        return self.latent.settings.rotary_size if self.latent.site.kind == "self" else 0

    def setup(self) -> None:
        super().setup()
        latent, heads = xavier_uniform(0, 1), xavier_uniform(0, (1, 2))
        self.latent_norm, self.query_latent_norm = (RMSNorm(EPSILON, self.precision) for _ in "CE")
        self.latent_kernel = self.param("latent_kernel", latent, (self.d_model, self.memory_width))
        if self.latent.settings.query_width:
            self.query_latent_kernel = self.param("query_latent_kernel", latent, (self.d_model, self.query_width))
        if self.rotary_size:
            shape = self.query_width, self.num_heads, self.rotary_size
            self.rotary_query_kernel = self.param("rotary_query_kernel", heads, shape)
            self.rotary_key_kernel = self.param("rotary_key_kernel", latent, (self.d_model, self.rotary_size))

    def empty_cache(self, rows: int, num_slots: int, beams: int) -> LayerCache:
        size, slots = self.memory_width + self.rotary_size, self.num_kept_slots(num_slots, beams)
        return LayerCache(empty_kv(rows, 1, slots, size, 0, self.precision))

    def cache_of(self, memory: Float[Array, "B M D"], positions: Int[AnyArray, "B M"]) -> KVCache:
        stored = jnp.swapaxes(self._compressed(memory, positions), 2, 3).astype(self.precision.compute)
        return KVCache(stored, jnp.zeros((len(memory), 1, memory.shape[1], 0), stored.dtype))

    def queries_of(self, queries: Float[Array, "B Q D"], positions: Int[AnyArray, "B Q"]) -> Array:
        if self.latent.settings.query_width:
            queries = einsum("BQD,DE->BQE", queries, self.query_latent_kernel, self.precision)
            queries = self.query_latent_norm(queries) if self.latent.settings.has_norms else queries
        query = super().queries_of(queries, positions)
        if not self.rotary_size:
            return query
        rotary = project_heads(queries, self.rotary_query_kernel, self.precision)
        return jnp.concatenate([query, rotated(rotary, positions, 1e4)], axis=-1)

    def memory_of(self, memory: Float[Array, "B M D"], positions: Int[AnyArray, "B M"]) -> tuple[Array, Array]:
        return self._expanded(self._compressed(memory, positions), positions)

    def _compressed(self, memory: Float[Array, "B M D"], positions: Int[AnyArray, "B M"]) -> Float[Array, "B 1 M X"]:
        latent = einsum("BMD,DC->BMC", memory, self.latent_kernel, self.precision)[:, None]
        latent = self.latent_norm(latent) if self.latent.settings.has_norms else latent
        if not self.rotary_size:
            return latent
        rotary = einsum("BMD,DR->BMR", memory, self.rotary_key_kernel, self.precision)[:, None]
        return jnp.concatenate([latent, rotated(rotary, positions, 1e4)], axis=-1)

    def _expanded(self, stored: Float[Array, "B 1 M X"], positions: Int[AnyArray, "B M"]) -> tuple[Array, Array]:
        """Expand all keys and values of ``_compressed``."""
        latent, rotary = stored[:, 0, :, : self.memory_width], stored[..., self.memory_width :]
        key, value = super().memory_of(latent, positions)
        return jnp.concatenate([key, jnp.broadcast_to(rotary, (*key.shape[:3], rotary.shape[3]))], axis=-1), value

    def attend(self, queries: Float[Array, "B Q D"], cache: KVCache, mask: StepMask) -> Float[Array, "B Q D"]:
        stored, plain = jnp.swapaxes(cache.keys, 2, 3), (AttentionChange.keys, AttentionChange.values)
        is_changed = any((type(change).keys, type(change).values) != plain for change in self.changes.values())
        if is_changed or self.score_mod(mask.score_mod) or self._mods("weights_mod"):
            key, value = self._expanded(stored, mask.key_positions)
            return super().attend(queries, KVCache(jnp.swapaxes(key, 2, 3), value), mask)
        query = self.queries_of(queries, mask.query_positions)
        query = query * (stored.shape[3] / query.shape[3]) ** 0.5
        query_BGRK = by_key_head(query[..., : self.key_size], self.num_key_value_heads)
        absorbed = einsum("BGRK,CGK->BGRC", query_BGRK, self.key_kernel, self.precision).reshape(*query.shape[:3], -1)
        absorbed = jnp.concatenate([absorbed, query[..., self.key_size :]], axis=-1)
        latent, options = stored[..., : self.memory_width], self.options(None, train=False)
        heads, weights = modified_attention(absorbed, stored, latent, self._visible(mask), options)
        self.sow("intermediates", "attention_weights", weights)
        heads = einsum("BGRC,CGU->BGRU", by_key_head(heads, query_BGRK.shape[1]), self.value_kernel, self.precision)
        return self.output_of(heads.reshape(*query.shape[:3], -1), queries)


@register("attention", "latent", settings=LatentSettings)
class Latent(AttentionChange):
    """Keys and values are projections of a narrow latent, which alone is in the cache."""

    attention = LatentAttention
