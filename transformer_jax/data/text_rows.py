"""Documents as rows of a fixed length, and a plan of rows, a pure function of (seed, epoch)."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import PAD_ID
from transformer_jax.config import DataError
from transformer_jax.config.language_model import TextBatchingConfig
from transformer_jax.data.batches import token_rows
from transformer_jax.data.buckets import rows_of
from transformer_jax.data.mixed_corpora import items_of_epoch, ranges_of
from transformer_jax.data.orders import epoch_order, joined_ranges, random_order
from transformer_jax.data.packing import pack_rows
from transformer_jax.data.pair_encoding import Sentences
from transformer_jax.data.token_store import DocumentStore, Ids
from transformer_jax.sequence_types import Tokens

PADDING_ROW = -1


class SplitRows:
    """The first ``num_tokens`` of a stream, cut every ``length``; padding completes the last row.

    With a ``stride`` below ``length``, rows begin every ``stride`` tokens, and only the last
    ``stride`` tokens of a row are scored, except for the first row.
    """

    def __init__(self, ids: Ids, num_tokens: int, length: int, stride: int = 0) -> None:
        self._ids, self._num_tokens, self._length = ids, num_tokens, length
        self._stride = stride or length
        self.num_rows = 1 + -(-max(num_tokens - length, 0) // self._stride)

    def tokens(self, indices: np.ndarray) -> Tokens:
        """Return the rows at ``indices``, [R, length], as a segment, or as padding."""
        stream, is_token = self._stream_positions(indices)
        ids = np.asarray(self._ids[np.where(is_token, stream, 0)], np.int32)
        positions = np.arange(self._length, dtype=np.int32) * is_token.astype(np.int32)
        return Tokens(np.where(is_token, ids, np.int32(PAD_ID)), is_token.astype(np.int32), positions)

    def is_scored(self, indices: np.ndarray) -> np.ndarray:
        _, is_token = self._stream_positions(indices)
        is_new = (np.arange(self._length) >= self._length - self._stride) | (indices[:, None] == 0)
        return is_token & is_new

    def _stream_positions(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions in the stream, and whether they hold a token, [R, length]."""
        positions = indices[:, None] * self._stride + np.arange(self._length)
        return positions, (indices[:, None] != PADDING_ROW) & (positions < self._num_tokens)


class PackedRows:
    """Documents in pieces of at most ``length``, packed into rows as separate segments.

    ``documents``: indices of documents, by default all once.
    """

    def __init__(
        self, ids: Ids, offsets: np.ndarray, length: int, seed: int, documents: np.ndarray | None = None
    ) -> None:
        self._ids, self._length = ids, length
        sizes = np.diff(offsets)
        documents = np.arange(len(sizes)) if documents is None else documents
        counts = -(-sizes[documents] // length)
        document = np.repeat(documents, counts)
        index = joined_ranges(np.zeros(len(counts), np.int64), counts)
        self._starts = offsets[document] + length * index
        self._sizes = np.minimum(length, sizes[document] - length * index).astype(np.int32)
        order = random_order(len(self._sizes), seed, epoch=0, stream=1)
        self._pieces, self._offsets = pack_rows(np.stack([self._sizes] * 2), order, (length, length))
        self.num_rows = len(self._offsets) - 1

    def tokens(self, indices: np.ndarray) -> Tokens:
        """Return the rows at ``indices``, [R, length]; ``PADDING_ROW`` gives a row of padding."""
        rows = np.maximum(indices, 0)
        first, counts = self._offsets[rows], (self._offsets[rows + 1] - self._offsets[rows]) * (indices >= 0)
        pieces = self._pieces[joined_ranges(first, counts)]
        sizes = self._sizes[pieces]
        ids = np.asarray(self._ids[joined_ranges(self._starts[pieces], sizes)], np.int32)
        return token_rows(Sentences(ids, sizes), np.concatenate([[0], np.cumsum(counts)]), self._length)

    def is_scored(self, indices: np.ndarray) -> np.ndarray:
        return np.asarray(self.tokens(indices).segments) != 0


TextRows = SplitRows | PackedRows
"""All rows of a split, which score every token once."""


def rows_of_store(
    store: DocumentStore, batching: TextBatchingConfig, seed: int, *, limit: int = 0, stride: int = 0, begin: int = 0
) -> TextRows:
    """Return the rows of the documents from ``begin`` on, of ``limit`` documents if above 0."""
    offsets = store.offsets[begin : begin + limit + 1 if limit else None]
    ids, offsets = (store.ids[offsets[0] : offsets[-1]], offsets - offsets[0]) if begin else (store.ids, offsets)
    if batching.kind == "packed":
        return PackedRows(ids, offsets, batching.context_length, seed)
    return SplitRows(ids, int(offsets[-1]), batching.context_length, stride)


def tokens_of_corpora(store: DocumentStore) -> dict[str, int]:
    ranges = ranges_of(store.corpora)
    return {name: int(store.offsets[begin + number] - store.offsets[begin]) for name, begin, number in ranges}


def rows_of_mixture(
    store: DocumentStore, batching: TextBatchingConfig, seed: int, times: Mapping[str, float]
) -> tuple[TextRows, np.ndarray | None]:
    """Return the rows of a mixture, and the indices of the rows of an epoch, or None for all once.

    ``times``: how often an epoch has a corpus. A row of a stream belongs to the corpus of its
    first token. Raises DataError at a corpus without such a row.
    """
    if batching.kind == "packed":
        documents = items_of_epoch(store.corpora, times, seed)
        return PackedRows(store.ids, store.offsets[:], batching.context_length, seed, documents), None
    rows, length = rows_of_store(store, batching, seed), batching.context_length
    ends = -(-np.cumsum(list(tokens_of_corpora(store).values())) // length)
    sizes = dict(zip(store.corpora, np.diff(ends, prepend=0).tolist(), strict=True))
    for name, size in sizes.items():
        if not size:
            problem = f"the corpus {name!r} fills no row of {length} tokens; give more, or pack documents"
            raise DataError(f"data.train: {problem}")
    return rows, items_of_epoch(sizes, times, seed)


class RowPlan(NamedTuple):
    """Assignment of rows to updates: an epoch has every row once, in a new order.

    Padding completes the last batch. ``epoch_rows``: indices of the ``num_rows`` rows of an epoch,
    some maybe several times; None: all rows.
    """

    num_rows: int
    rows_per_update: int
    seed: int
    epoch_rows: np.ndarray | None = None

    @property
    def updates_per_epoch(self) -> int:
        return -(-self.num_rows // self.rows_per_update)

    def rows(self, update: int) -> np.ndarray:
        """Return the rows of an update (from 0), int64 ``[rows_per_update]``."""
        if update < 0:
            raise ValueError(f"update {update} is before the first")
        epoch, index = divmod(update, self.updates_per_epoch)
        start = index * self.rows_per_update
        rows = epoch_order(self.num_rows, self.seed, epoch)[start : start + self.rows_per_update]
        rows = rows if self.epoch_rows is None else self.epoch_rows[rows]
        return np.concatenate([rows, np.full(self.rows_per_update - len(rows), PADDING_ROW, np.int64)])


def plan_rows(num_rows: int, batching: TextBatchingConfig, seed: int, epoch_rows: np.ndarray | None) -> RowPlan:
    """Return the plan with ``batching.tokens_per_update`` tokens in an update."""
    rows = rows_of(batching.context_length, batching.tokens_per_update, batching.row_multiple)
    return RowPlan(num_rows if epoch_rows is None else len(epoch_rows), rows, seed, epoch_rows)
