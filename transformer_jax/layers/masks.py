"""Attention masks: boolean, True = may attend."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, AttentionMask, Bool, Int, PyTree


@dataclass(frozen=True)
class Window:
    """Sliding window: a query sees keys at most ``before`` positions before it and ``after`` positions after it."""

    before: int
    after: int

    def visible(
        self, query_positions: Int[AnyArray, "B Q"], key_positions: Int[AnyArray, "B M"]
    ) -> Bool[Array, "B Q M"]:
        distance = jnp.asarray(key_positions)[:, None, :] - jnp.asarray(query_positions)[:, :, None]
        return (distance >= -self.before) & (distance <= self.after)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["query_segments", "key_segments", "query_positions", "key_positions"],
    meta_fields=["is_causal", "mask_mod"],
)
@dataclass(frozen=True)
class SentenceMask:
    """A token sees the tokens of its own sentence, and if ``is_causal`` none after it (Vaswani et al. 2017, section 3.2.3).

    Padding (segment 0) and packed neighbors are invisible. Kept as segments [B, Q] and [B, M], so that blockwise attention
    never needs the whole mask. ``query_positions`` [B, Q] and ``key_positions`` [B, M] count from 0 in each sentence;
    ``mask_mod`` and modified scores read them.
    """

    # JAX also puts other objects than arrays into a tree.
    query_segments: PyTree
    key_segments: PyTree
    is_causal: bool = False
    query_positions: PyTree = None
    key_positions: PyTree = None
    mask_mod: Window | None = None

    def array(self) -> AttentionMask:
        """The mask [B, Q, M]."""
        mask = segment_mask(self.query_segments, self.key_segments)
        if self.mask_mod:
            mask &= self.mask_mod.visible(self.query_positions, self.key_positions)
        return mask & causal_mask(mask.shape[1]) if self.is_causal else mask


def segment_mask(query_segments: Int[AnyArray, "B Q"], key_segments: Int[AnyArray, "B M"]) -> AttentionMask:
    """A position sees the tokens of its own sentence, never padding or packed neighbors. [B, Q, M].

    For queries ``[[1, 1, 2]]`` and keys ``[[1, 2, 0]]``::

        [[[1, 0, 0],
          [1, 0, 0],
          [0, 1, 0]]]
    """
    query_segments, key_segments = jnp.asarray(query_segments), jnp.asarray(key_segments)
    same_sentence = query_segments[:, :, None] == key_segments[:, None, :]
    return same_sentence & (key_segments != 0)[:, None, :]


def causal_mask(length: int) -> Bool[Array, "1 length length"]:
    """A position sees itself and what precedes it; [1, length, length]."""
    return jnp.tril(jnp.ones((1, length, length), dtype=bool))


def with_written_slots(visible: Bool[Array, "B W M"], write_index: Int[Array, ""]) -> Bool[Array, "B W M"]:
    """Cache slots visible to each beam once beam ``w`` has written slot ``write_index + w``."""
    beams, num_slots = visible.shape[1:]
    return visible | (jnp.arange(num_slots)[None, None, :] == write_index + jnp.arange(beams)[None, :, None])
