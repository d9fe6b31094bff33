"""Multi-head attention that differs from the paper's: public checkpoints, ablations, and the base class for other scores."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from transformer_jax.array_types import Array, Bool, Float, Int
from transformer_jax.layers.attention import KVCache, MultiHeadAttention
from transformer_jax.layers.dropout import Dropout
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import MASKED_SCORE
from transformer_jax.precision import add_bias, einsum


class BiasedAttention(MultiHeadAttention):
    """A bias on each of the four projections, as in most public checkpoints: OPUS-MT, M2M-100, fairseq, GPT-2."""

    def setup(self) -> None:
        super().setup()
        zeros = nn.initializers.zeros
        self.query_bias = self.param("query_bias", zeros, (self.num_heads, self.key_size))
        self.key_bias = self.param("key_bias", zeros, (self.num_heads, self.key_size))
        self.value_bias = self.param("value_bias", zeros, (self.num_heads, self.value_size))
        self.output_bias = self.param("output_bias", zeros, (self.d_model,))

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        keys, values = super().project_memory(memory)
        return add_bias(keys, self.key_bias[:, None]), add_bias(values, self.value_bias[:, None])

    def project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        return add_bias(super().project_queries(queries), self.query_bias[:, None])

    def merge_heads(self, heads_BHQU: Float[Array, "B H Q U"]) -> Float[Array, "B Q D"]:
        return add_bias(super().merge_heads(heads_BHQU), self.output_bias)


class RectifiedAttention(MultiHeadAttention):
    """Multi-head attention of an early public re-implementation (Kyubyong/transformer, 2017), here without biases.

    Queries, keys and values pass a ReLU, there is no output projection, so H·U must be D, and padding gets zeros.
    """

    def setup(self) -> None:
        heads_in = xavier_uniform(0, (1, 2))
        self.query_kernel = self.param("query", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.key_kernel = self.param("key", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.value_kernel = self.param("value", heads_in, (self.d_model, self.num_heads, self.value_size))
        self.weight_dropout = Dropout(self.dropout)

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        is_token = jnp.asarray(mask.query_segments) != 0
        return jnp.where(is_token[:, :, None], super().__call__(queries, memory, mask, train=train), 0.0)

    def attend(
        self, queries: Float[Array, "B Q D"], cache: KVCache, mask: Bool[Array, "#B #Q M"]
    ) -> Float[Array, "B Q D"]:
        return jnp.where(jnp.any(mask, axis=-1)[:, :, None], super().attend(queries, cache, mask), 0.0)

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        keys, values = super().project_memory(memory)
        return jax.nn.relu(keys), jax.nn.relu(values)

    def project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        return jax.nn.relu(super().project_queries(queries))

    def merge_heads(self, heads_BHQU: Float[Array, "B H Q U"]) -> Float[Array, "B Q D"]:
        heads_BQHU = jnp.swapaxes(heads_BHQU, 1, 2)
        return heads_BQHU.reshape(*heads_BQHU.shape[:2], -1)


class UnscaledAttention(MultiHeadAttention):
    """softmax(Q Kᵀ) V: without the 1 / sqrt(d_k) of equation 1 (Vaswani et al. 2017, section 3.2.1)."""

    def project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        """Queries times sqrt(d_k), by which every backend divides."""
        return super().project_queries(queries) * self.key_size**0.5


class AcausalAttention(MultiHeadAttention):
    """No causal mask (against section 3.2.3) in teacher-forced passes; a decoding step is unchanged."""

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` to the whole sentence in ``memory``."""
        return super().__call__(queries, memory, replace(mask, is_causal=False), train=train)


class Positions(NamedTuple):
    """Positions of the queries [Q] and keys [M] of self-attention; only their differences mean something."""

    query: Array
    key: Array

    @property
    def distance(self) -> Array:
        """Key position minus query position [Q, M]; negative for keys before the query."""
        return self.key[None, :] - self.query[:, None]


class ScoredAttention(MultiHeadAttention):
    """Multi-head attention whose ``scores`` a subclass replaces; all scores are computed at once, without a backend.

    A subclass creates its parameters in ``setup``, after ``super().setup()``.
    """

    def scores(
        self, query_BHQK: Float[Array, "B H Q K"], key_BHMK: Float[Array, "B H M K"], positions: Positions | None
    ) -> Float[Array, "B H Q M"]:
        """Scores before mask and softmax, here equation 1; ``positions`` is None in cross attention."""
        return einsum("BHQK,BHMK->BHQM", query_BHQK * query_BHQK.shape[-1] ** -0.5, key_BHMK, self.precision.wide)

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` to ``memory``, which are the same array in self-attention."""
        keys, values = self.project_memory(memory)
        order = jnp.arange(queries.shape[1])
        positions = Positions(order, order) if memory is queries else None
        return self._attend_with_scores(queries, keys, values, mask.array(), positions, train=train)

    def attend(
        self, queries: Float[Array, "B Q D"], cache: KVCache, mask: Bool[Array, "#B #Q M"]
    ) -> Float[Array, "B Q D"]:
        """Cross attention to a cached source."""
        keys = jnp.swapaxes(cache.keys, 2, 3)
        return self._attend_with_scores(queries, keys, cache.values, mask, None, train=False)

    def step(
        self,
        inputs: Float[Array, "B W D"],
        cache: KVCache,
        write_index: Int[Array, ""],
        visible: Bool[Array, "B W M"],
    ) -> tuple[Float[Array, "B W D"], KVCache]:
        """Self-attention of one more position in each beam; every step writes W cache slots, one a beam."""
        cache, beams = cache.write(self.cache_of(inputs), write_index), inputs.shape[1]
        positions = Positions(jnp.full((beams,), write_index // beams), jnp.arange(cache.keys.shape[3]) // beams)
        keys = jnp.swapaxes(cache.keys, 2, 3)
        return self._attend_with_scores(inputs, keys, cache.values, visible, positions, train=False), cache

    def _attend_with_scores(
        self,
        queries: Array,
        keys: Array,
        values: Array,
        mask: Bool[Array, "#B #Q M"],
        positions: Positions | None,
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        scores_BHQM = self.scores(self.project_queries(queries), keys.astype(jnp.float32), positions)
        visible = jnp.broadcast_to(mask[:, None], scores_BHQM.shape)
        weights_BHQM = jax.nn.softmax(jnp.where(visible, scores_BHQM, MASKED_SCORE), axis=-1)
        self.sow("intermediates", "attention_weights", weights_BHQM)
        dropout = self.weight_dropout.mask(train=train)
        dropped_BHQM = weights_BHQM if dropout is None else dropout(weights_BHQM)
        return self.merge_heads(einsum("BHQM,BHMU->BHQU", dropped_BHQM, values, self.precision))
