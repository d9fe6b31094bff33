"""Attention masks: boolean, True = may attend."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, AttentionMask, Bool, Int, PyTree


@partial(jax.tree_util.register_dataclass, data_fields=["query_segments", "key_segments"], meta_fields=["is_causal"])
@dataclass(frozen=True)
class SentenceMask:
    """A token sees those of its own sentence: never padding (segment 0), never a packed neighbor.

    If ``is_causal`` a position also sees nothing after its own place (Vaswani et al. 2017, section 3.2.3). Kept as its
    ingredients, segments [B, Q] and [B, M], so that an attention that works block by block need not have all of it at once.
    """

    # JAX also puts other things than arrays into a tree.
    query_segments: PyTree
    key_segments: PyTree
    is_causal: bool = False

    def array(self) -> AttentionMask:
        """The mask itself [B, Q, M]."""
        mask = segment_mask(self.query_segments, self.key_segments)
        return mask & causal_mask(mask.shape[1]) if self.is_causal else mask


def segment_mask(query_segments: Int[AnyArray, "B Q"], key_segments: Int[AnyArray, "B M"]) -> AttentionMask:
    """A position sees the tokens of its own sentence: padding is never seen, packed neighbors neither. [B, Q, M].

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


def prefix_mask(last: Int[Array, ""], length: int) -> Bool[Array, "1 1 length"]:
    """Positions ``0 .. last`` of a cache of ``length``: what the newest token of incremental decoding sees. [1, 1, length]."""
    return (jnp.arange(length) <= last)[None, None, :]
