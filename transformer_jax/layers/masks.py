"""Attention masks: boolean, True = may attend."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, AttentionMask, Bool, Int, PyTree

MaskMod = Callable[[Int[AnyArray, "#B Q"], Int[AnyArray, "#B M"]], Bool[Array, "#B Q M"]]
"""Visible keys from positions of queries and keys: a ``Window``, or a function that exists once."""


@dataclass(frozen=True)
class Window:
    """A sliding window: a query sees ``left`` positions before it and ``right`` after (None: all).

    For self-attention (Beltagy et al. 2020, section 3.1). Distances are counted in the row, as for
    causality. Positions in a sentence are consecutive, so they give the same distances, and
    backends can skip blocks outside of it.
    """

    left: int | None
    right: int | None

    def __call__(
        self, query_positions: Int[AnyArray, "#B Q"], key_positions: Int[AnyArray, "#B M"]
    ) -> Bool[Array, "#B Q M"]:
        distance = jnp.asarray(key_positions)[:, None, :] - jnp.asarray(query_positions)[:, :, None]
        visible = jnp.ones_like(distance, bool) if self.left is None else distance >= -self.left
        return visible if self.right is None else visible & (distance <= self.right)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["query_segments", "key_segments", "query_positions", "key_positions", "score_mod"],
    meta_fields=["is_causal", "mask_mod"],
)
@dataclass(frozen=True)
class SentenceMask:
    """Visibility of the tokens of the same sentence, and if ``is_causal`` of none after the query.

    Vaswani et al. 2017, section 3.2.3. Padding (segment 0) and packed neighbors are invisible. Kept
    as segments [B, Q] and [B, M], so that blockwise attention never needs the whole mask.
    ``mask_mod`` hides more keys. It and score changes read ``query_positions`` [B, Q] and
    ``key_positions`` [B, M], which count from 0 in a sentence, by default indices in the row.
    ``score_mod`` changes the scores of all layers of a stack (``layers.positions.score_mod_of``).
    """

    # JAX also puts other objects than arrays into a tree.
    query_segments: PyTree
    key_segments: PyTree
    is_causal: bool = False
    query_positions: PyTree = None
    key_positions: PyTree = None
    mask_mod: MaskMod | None = None
    score_mod: PyTree = None

    @classmethod
    def between(
        cls, queries: PyTree, keys: PyTree, *, is_causal: bool = False, score_mod: PyTree = None
    ) -> "SentenceMask":
        """Return the mask between two sides, which have ``segments`` and ``positions``."""
        return cls(queries.segments, keys.segments, is_causal, queries.positions, keys.positions, score_mod=score_mod)

    def array(self) -> AttentionMask:
        mask = segment_mask(self.query_segments, self.key_segments)
        if self.mask_mod is not None:
            mask &= visible_to_mod(self.mask_mod, row_indices(mask.shape[1], mask.shape[2]), self.positions)
        return mask & causal_mask(mask.shape[1]) if self.is_causal else mask

    @property
    def positions(self) -> tuple[Int[AnyArray, "#B Q"], Int[AnyArray, "#B M"]]:
        """Positions of the queries and keys, [1, L] if they are indices in the row."""
        indices = row_indices(self.query_segments.shape[1], self.key_segments.shape[1])
        positions = self.query_positions, self.key_positions
        query, key = (index if side is None else side for side, index in zip(positions, indices, strict=True))
        return query, key

    @property
    def window(self) -> Window:
        """The window of ``mask_mod``, causality included; no limits for other functions."""
        window = self.mask_mod if isinstance(self.mask_mod, Window) else Window(None, None)
        return replace(window, right=0) if self.is_causal else window


def visible_to_mod(
    mask_mod: MaskMod, indices: tuple[AnyArray, AnyArray], positions: tuple[AnyArray, AnyArray]
) -> Bool[Array, "#B Q M"]:
    """Call ``mask_mod`` with the indices in the row if it is a window, else with positions."""
    return mask_mod(*(indices if isinstance(mask_mod, Window) else positions))


def row_indices(queries: int, keys: int) -> tuple[Int[Array, "1 Q"], Int[Array, "1 M"]]:
    return jnp.arange(queries)[None, :], jnp.arange(keys)[None, :]


def segment_mask(query_segments: Int[AnyArray, "B Q"], key_segments: Int[AnyArray, "B M"]) -> AttentionMask:
    """Return the mask [B, Q, M] of tokens of the same sentence, without padding and neighbors.

    For queries ``[[1, 1, 2]]`` and keys ``[[1, 2, 0]]``::

        [[[1, 0, 0],
          [1, 0, 0],
          [0, 1, 0]]]
    """
    query_segments, key_segments = jnp.asarray(query_segments), jnp.asarray(key_segments)
    same_sentence = query_segments[:, :, None] == key_segments[:, None, :]
    return same_sentence & (key_segments != 0)[:, None, :]


def causal_mask(length: int) -> Bool[Array, "1 length length"]:
    """Return the mask of a position and those before it."""
    return jnp.tril(jnp.ones((1, length, length), dtype=bool))


def with_written_slots(visible: Bool[Array, "B W M"], write_index: Int[Array, ""]) -> Bool[Array, "B W M"]:
    """Return the visible cache slots once beam ``w`` has written slot ``write_index + w``."""
    beams, num_slots = visible.shape[1:]
    return visible | (jnp.arange(num_slots)[None, None, :] == write_index + jnp.arange(beams)[None, :, None])
