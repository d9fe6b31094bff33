"""Which pairs go into which update: a pure function of (seed, epoch), so that a position in the data is one number."""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from transformer_jax.config import BatchingConfig
from transformer_jax.data.buckets import bucket_widths
from transformer_jax.data.packing import pack_rows

Shape = tuple[int, int, int]
"""Rows, source width, target width."""


class BatchRows(NamedTuple):
    """One batch before its tokens are read: the pairs of each row, none in a row of padding."""

    shape: Shape
    pairs: list[np.ndarray]


class PaddingShare(NamedTuple):
    """The share of token positions of an epoch that are padding, from 0 to 1."""

    source: float
    target: float


class BatchPlan(ABC):
    """All batches of all epochs. Every epoch has every pair once, in its own order, in the same number of batches."""

    shapes: list[Shape]
    batches_per_epoch: int
    padding_share: PaddingShare

    def batch(self, update: int) -> BatchRows:
        """The batch of an update, counted from 0."""
        epoch, index = divmod(update, self.batches_per_epoch)
        return self._epoch_batch(epoch, index)

    @abstractmethod
    def _epoch_batch(self, epoch: int, index: int) -> BatchRows: ...


def plan_batches(
    source_lengths: np.ndarray, target_lengths: np.ndarray, config: BatchingConfig, seed: int
) -> BatchPlan:
    """The plan for pairs of these lengths, EOS included; it does not depend on devices or processes."""
    if config.kind == "packed":
        return PackedPlan(source_lengths, target_lengths, config, seed)
    return BucketPlan(source_lengths, target_lengths, config, seed)


class BucketPlan(BatchPlan):
    """Pairs of similar length together, a pair a row; the last batch of a bucket is completed with rows of padding."""

    def __init__(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, config: BatchingConfig, seed: int
    ) -> None:
        self._seed = seed
        widest = np.maximum(source_lengths, target_lengths)
        widths = bucket_widths(widest, config.num_buckets)
        bucket_of = np.searchsorted(widths, widest)
        self._members = [np.flatnonzero(bucket_of == bucket) for bucket in range(len(widths))]
        self.shapes = []
        for width, members in zip(widths, self._members, strict=True):
            rows = max(config.tokens_per_update // width // config.row_multiple, 1) * config.row_multiple
            self.shapes.append((rows, int(source_lengths[members].max()), int(target_lengths[members].max())))
        counts = [-(-len(members) // shape[0]) for members, shape in zip(self._members, self.shapes, strict=True)]
        self.batches_per_epoch = sum(counts)
        self._bucket_of_batch = np.repeat(np.arange(len(widths)), counts)
        self._index_in_bucket = np.concatenate([np.arange(count) for count in counts])
        positions = [sum(n * s[0] * s[side] for n, s in zip(counts, self.shapes, strict=True)) for side in (1, 2)]
        self.padding_share = PaddingShare(
            1 - float(source_lengths.sum()) / positions[0], 1 - float(target_lengths.sum()) / positions[1]
        )
        # A training reads one epoch at a time, twice at its border.
        self._orders = lru_cache(maxsize=2)(self._epoch_orders)

    def _epoch_batch(self, epoch: int, index: int) -> BatchRows:
        batch_order, members = self._orders(epoch)
        chosen = batch_order[index]
        bucket = int(self._bucket_of_batch[chosen])
        shape = self.shapes[bucket]
        start = int(self._index_in_bucket[chosen]) * shape[0]
        pairs = members[bucket][start : start + shape[0]]
        nothing = [pairs[:0]] * (shape[0] - len(pairs))
        return BatchRows(shape, [*pairs[:, None], *nothing])

    def _epoch_orders(self, epoch: int) -> tuple[np.ndarray, list[np.ndarray]]:
        generator = np.random.default_rng((self._seed, epoch))
        members = [generator.permutation(bucket) for bucket in self._members]
        return generator.permutation(self.batches_per_epoch), members


class PackedPlan(BatchPlan):
    """Several pairs a row. They are packed once, in an order drawn from the seed; each epoch shuffles the rows."""

    def __init__(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, config: BatchingConfig, seed: int
    ) -> None:
        self._seed = seed
        width = config.packed_length
        order = np.random.default_rng(seed).permutation(len(source_lengths))
        self._pairs, self._offsets = pack_rows(source_lengths, target_lengths, order, width)
        rows = config.tokens_per_update // width // config.row_multiple * config.row_multiple
        self.shapes = [(rows, width, width)]
        self.batches_per_epoch = -(-(len(self._offsets) - 1) // rows)
        positions = self.batches_per_epoch * rows * width
        self.padding_share = PaddingShare(
            1 - float(source_lengths.sum()) / positions, 1 - float(target_lengths.sum()) / positions
        )
        self._orders = lru_cache(maxsize=2)(self._epoch_order)

    def _epoch_batch(self, epoch: int, index: int) -> BatchRows:
        shape = self.shapes[0]
        rows = self._orders(epoch)[index * shape[0] : (index + 1) * shape[0]]
        pairs = [self._pairs[self._offsets[row] : self._offsets[row + 1]] for row in rows]
        return BatchRows(shape, pairs + [self._pairs[:0]] * (shape[0] - len(rows)))

    def _epoch_order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self._seed, epoch)).permutation(len(self._offsets) - 1)
