"""Token rows, batches of pairs and decoding caches."""

from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import PAD_ID, AnyArray, PyTree


class Tokens(NamedTuple):
    """Rows of token ids, possibly several sentences a row ("packed").

    ``segments`` is 0 on padding and otherwise the number, from 1, of the sentence inside its row.
    The tokens of a sentence are neighbors, and ``positions`` counts them from 0. For two sentences
    packed into one row of seven::

        ids       [[7, 8, 2, 9, 2, 0, 0]]
        segments  [[1, 1, 1, 2, 2, 0, 0]]
        positions [[0, 1, 2, 0, 1, 0, 0]]

    Shapes: three int32 arrays ``[B, L]``. Sentences end with ``EOS_ID``.
    """

    ids: AnyArray
    segments: AnyArray
    positions: AnyArray

    @classmethod
    def from_ids(cls, ids: AnyArray) -> "Tokens":
        """Return one sentence a row, padded on the right with ``PAD_ID``; also under tracing."""
        is_token = ids != PAD_ID
        positions = np.arange(ids.shape[1], dtype=np.int32)[None, :] * is_token
        return cls(ids, is_token.astype(np.int32), positions.astype(np.int32))


class RowParts(NamedTuple):
    """Some of ``num_parts`` equal parts of the rows of a batch, by their indices."""

    indices: tuple[int, ...]
    num_parts: int


class Batch(NamedTuple):
    """A batch of sentence pairs, which end with ``EOS_ID``. The model derives the decoder's input.

    Row ``r`` segment ``s`` of ``source`` translates to row ``r`` segment ``s`` of ``target``. Rows
    that are all padding are allowed and count for nothing.
    """

    source: Tokens
    target: Tokens


def sides_of(batch: PyTree) -> list[Tokens]:
    """Return source and target of a ``Batch``, or the rows of a text."""
    return jax.tree.leaves(batch, is_leaf=lambda node: isinstance(node, Tokens))


def batch_shape(rows: int, source_width: int, target_width: int) -> Batch:
    """Return the shapes and types of a batch, without its numbers."""

    def side(width: int) -> Tokens:
        tokens = Tokens.from_ids(np.zeros((rows, width), np.int32))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tokens)

    return Batch(side(source_width), side(target_width))


class DecodeCache(NamedTuple):
    """State of incremental decoding.

    ``per_beam``: leaves ``[B, W, ...]`` that are reordered with the beams. Leaves of rank 0 (a step
    counter) are shared by all rows and never reordered. ``per_sentence``: leaves ``[B, ...]``, the
    same for every beam of a sentence and at every step (encoded source, projected keys and values).
    ``kv_cache``: leaves ``[B, ...]`` that steps write into and that are never reordered; a mask in
    ``per_beam`` marks the entries of each beam.
    """

    per_beam: PyTree
    per_sentence: PyTree
    kv_cache: PyTree = ()
