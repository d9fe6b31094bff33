"""Multi-head attention with other scores than the scaled dot product: what attentions of users extend."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Bool, Float, Int
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import MASKED_SCORE
from transformer_jax.precision import einsum


class Positions(NamedTuple):
    """Positions of the queries [Q] and keys [M] of self-attention; only their differences mean something."""

    query: Array
    key: Array

    @property
    def distance(self) -> Array:
        """How far each key is behind its query [Q, M]; below 0 where it is before it."""
        return self.key[None, :] - self.query[:, None]


class ScoredAttention(MultiHeadAttention):
    """Multi-head attention whose ``scores`` a subclass replaces; they, and so the memory, are computed in full.

    Parameters of a subclass are made in its ``setup``, after ``super().setup()``.
    """

    def scores(
        self, query_BHQK: Float[Array, "B H Q K"], key_BHMK: Float[Array, "B H M K"], positions: Positions | None
    ) -> Float[Array, "B H Q M"]:
        """Scores before mask and softmax, here those of the paper (equation 1); no ``positions`` between target and source."""
        return einsum("BHQK,BHMK->BHQM", query_BHQK * query_BHQK.shape[-1] ** -0.5, key_BHMK, self.precision.wide)

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` [B, Q, D] to ``memory`` [B, M, D], which are the same in self-attention."""
        keys, values = self.project_memory(memory)
        places = jnp.arange(queries.shape[1])
        positions = Positions(places, places) if memory is queries else None
        return self._attended(queries, keys, values, mask.array(), positions, train=train)

    def attend(
        self,
        queries: Float[Array, "B Q D"],
        keys: Float[Array, "B H K M"],
        values: Float[Array, "B H M U"],
        mask: Bool[Array, "#B #Q M"],
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        """Attends to keys and values of the source as ``cached_memory`` has them."""
        return self._attended(queries, jnp.swapaxes(keys, 2, 3), values, mask, None, train=train)

    def attend_to_slots(
        self,
        queries: Float[Array, "B W D"],
        keys: Float[Array, "B H K M"],
        values: Float[Array, "B H M U"],
        visible: Bool[Array, "B W M"],
        first: Int[Array, ""],
    ) -> Float[Array, "B W D"]:
        """Attends from one more position in each beam; of the slots, each step wrote as many as there are beams."""
        beams = queries.shape[1]
        positions = Positions(jnp.full((beams,), first // beams), jnp.arange(keys.shape[3]) // beams)
        return self._attended(queries, jnp.swapaxes(keys, 2, 3), values, visible, positions, train=False)

    def _attended(
        self,
        queries: Float[Array, "B Q D"],
        keys: Float[Array, "B H M K"],
        values: Float[Array, "B H M U"],
        mask: Bool[Array, "#B #Q M"],
        positions: Positions | None,
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        scores_BHQM = self.scores(self._project_queries(queries), keys.astype(jnp.float32), positions)
        allowed = jnp.broadcast_to(mask[:, None], scores_BHQM.shape)
        weights_BHQM = jax.nn.softmax(jnp.where(allowed, scores_BHQM, MASKED_SCORE), axis=-1)
        self.sow("intermediates", "attention_weights", weights_BHQM)
        drops = self.weight_dropout.draw(train=train)
        kept_BHQM = weights_BHQM if drops is None else drops(weights_BHQM)
        heads_BHQU = einsum("BHQM,BHMU->BHQU", kept_BHQM, values, self.precision)
        return self._merged(jnp.swapaxes(heads_BHQU, 1, 2), jnp.any(mask, axis=-1))
