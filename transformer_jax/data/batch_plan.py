"""Assignment of pairs to updates: a pure function of (seed, epoch), so that a position in the data is one number."""

import itertools
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from transformer_jax.config import BatchingConfig, ConfigError
from transformer_jax.data.buckets import choose_buckets, rows_of
from transformer_jax.data.packing import pack_rows

# Updates scanned for the order in which shapes are needed; later shapes are compiled in time anyway.
SHAPES_LOOKED_FOR = 100

Shape = tuple[int, int, int]
"""Rows, source width, target width."""


class BatchRows(NamedTuple):
    """One batch before its tokens are read: row ``r`` holds ``pairs[offsets[r]:offsets[r + 1]]``, none if it is padding."""

    shape: Shape
    pairs: np.ndarray
    offsets: np.ndarray

    def part(self, index: int, count: int) -> "BatchRows":
        """Part ``index`` of ``count`` equal ones, a contiguous slice of the rows; raises ValueError unless they divide."""
        rows, source_width, target_width = self.shape
        if rows % count or not 0 <= index < count:
            raise ValueError(f"no part {index} of {rows} rows in {count} parts")
        share = rows // count
        offsets = self.offsets[index * share : (index + 1) * share + 1]
        shape = share, source_width, target_width
        return BatchRows(shape, self.pairs[offsets[0] : offsets[-1]], offsets - offsets[0])


class PaddingShare(NamedTuple):
    """The share of token positions of an epoch that are padding, from 0 to 1."""

    source: float
    target: float


class BatchPlan(ABC):
    """All batches of all epochs. Every epoch has every pair once, in its own order, in the same number of batches.

    A plan depends on lengths, settings and seed alone: not on devices, processes or what was asked of it before.
    """

    def __init__(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, seed: int, batches: dict[Shape, int]
    ) -> None:
        """``batches``: how many of each shape an epoch has."""
        self.seed = seed
        self.num_pairs = len(source_lengths)
        self.batches = batches
        self.shapes: list[Shape] = list(batches)
        self.batches_per_epoch = sum(batches.values())
        positions = [sum(count * shape[0] * shape[side] for shape, count in batches.items()) for side in (1, 2)]
        tokens = int(source_lengths.sum(dtype=np.int64)), int(target_lengths.sum(dtype=np.int64))
        self.padding_share = PaddingShare(*(1 - kept / of for kept, of in zip(tokens, positions, strict=True)))
        # A run reads one epoch at a time, two at its border.
        self._cached_epoch = lru_cache(maxsize=2)(self._epoch)

    def batch(self, update: int) -> BatchRows:
        """The batch of an update, counted from 0."""
        if update < 0:
            raise ValueError(f"update {update} is before the first")
        epoch, index = divmod(update, self.batches_per_epoch)
        return self._epoch_batch(epoch, index)

    def shapes_by_need(self, update: int) -> list[Shape]:
        """All shapes, in the order in which the updates from ``update`` on need them."""
        coming = (self.batch(update + ahead).shape for ahead in range(self.batches_per_epoch))
        met = dict.fromkeys(itertools.islice(coming, SHAPES_LOOKED_FOR))
        return [*met, *(shape for shape in self.shapes if shape not in met)]

    def to_json(self) -> dict[str, object]:
        """The plan in types that ``json.dumps`` accepts."""
        batches = [
            {"rows": rows, "source_width": source, "target_width": target, "batches": count}
            for (rows, source, target), count in self.batches.items()
        ]
        report = {"pairs": self.num_pairs, "batches_per_epoch": self.batches_per_epoch, "batches": batches}
        return report | {"padding_share": self.padding_share._asdict(), "notes": self.notes()}

    def table(self) -> str:
        """The plan as plain text."""
        lines = [f"batches: {self.batches_per_epoch:,} an epoch of {self.num_pairs:,} pairs"]
        for (rows, source, target), count in self.batches.items():
            lines.append(f"  {count:>7,} of {rows:>5} rows, {source:>4} source and {target:>4} target positions each")
        lines.append(f"  padding: {self.padding_share.source:.1%} of source, {self.padding_share.target:.1%} of target")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes())])

    def notes(self) -> list[str]:
        """Warnings about an unusual plan."""
        if self.batches_per_epoch > len(self.shapes):
            return []
        return ["every shape has a single batch, completed with padding: few pairs for batching.tokens_per_update"]

    @abstractmethod
    def _epoch(self, epoch: int) -> tuple[np.ndarray, ...]:
        """The orders that an epoch is read in."""

    @abstractmethod
    def _epoch_batch(self, epoch: int, index: int) -> BatchRows: ...


def plan_batches(
    source_lengths: np.ndarray, target_lengths: np.ndarray, config: BatchingConfig, seed: int
) -> BatchPlan:
    """The plan for pairs of these lengths, EOS included.

    Raises ConfigError when a pair is longer than a packed row, and ValueError when there is no pair.
    """
    if not len(source_lengths):
        raise ValueError("no pairs to make batches of")
    return PLANS[config.kind](source_lengths, target_lengths, config, seed)


class BucketPlan(BatchPlan):
    """Pairs of similar length together, a pair a row; the last batch of a bucket is completed with rows of padding."""

    def __init__(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, config: BatchingConfig, seed: int
    ) -> None:
        buckets = choose_buckets(
            source_lengths, target_lengths, config.num_buckets, config.tokens_per_update, config.row_multiple
        )
        bucket_of = np.searchsorted([bucket.widest for bucket in buckets], np.maximum(source_lengths, target_lengths))
        # Pairs of bucket 0, then those of bucket 1, ...
        self._by_bucket = np.argsort(bucket_of, kind="stable")
        self._starts = np.searchsorted(bucket_of[self._by_bucket], np.arange(len(buckets) + 1)).tolist()
        counts = [bucket.num_batches for bucket in buckets]
        self._bucket_of_batch = np.repeat(np.arange(len(buckets)), counts)
        self._index_in_bucket = np.concatenate([np.arange(count) for count in counts])
        shapes = [(bucket.rows, bucket.source_width, bucket.target_width) for bucket in buckets]
        super().__init__(source_lengths, target_lengths, seed, dict(zip(shapes, counts, strict=True)))

    def _epoch(self, epoch: int) -> tuple[np.ndarray, ...]:
        batch_order = random_order(self.batches_per_epoch, self.seed, epoch, stream=0)
        members = [
            self._by_bucket[start:end][random_order(end - start, self.seed, epoch, stream=bucket + 1)]
            for bucket, (start, end) in enumerate(zip(self._starts, self._starts[1:], strict=False))
        ]
        return batch_order, *members

    def _epoch_batch(self, epoch: int, index: int) -> BatchRows:
        batch_order, *members = self._cached_epoch(epoch)
        chosen = batch_order[index]
        bucket = self._bucket_of_batch[chosen]
        rows = self.shapes[bucket][0]
        start = self._index_in_bucket[chosen] * rows
        pairs = members[bucket][start : start + rows]
        return BatchRows(self.shapes[bucket], pairs, np.minimum(np.arange(rows + 1), len(pairs)))


class PackedPlan(BatchPlan):
    """Several pairs a row. They are packed once, in an order drawn from the seed; each epoch shuffles the rows."""

    def __init__(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, config: BatchingConfig, seed: int
    ) -> None:
        width = config.packed_length
        longest = int(max(source_lengths.max(), target_lengths.max()))
        if longest > width:
            remedy = f"raise it to {longest}, or lower data.max_source_tokens and data.max_target_tokens to {width - 1}"
            raise ConfigError(f"batching.packed_length: {width} is less than the longest sentence, {longest}; {remedy}")
        order = random_order(len(source_lengths), seed, epoch=0, stream=1)
        self._pairs, self._offsets = pack_rows(source_lengths, target_lengths, order, width)
        self._num_rows = len(self._offsets) - 1
        self._rows = rows_of(width, config.tokens_per_update, config.row_multiple)
        batches = {(self._rows, width, width): -(-self._num_rows // self._rows)}
        super().__init__(source_lengths, target_lengths, seed, batches)

    def _epoch(self, epoch: int) -> tuple[np.ndarray, ...]:
        return (random_order(self._num_rows, self.seed, epoch, stream=0),)

    def _epoch_batch(self, epoch: int, index: int) -> BatchRows:
        (row_order,) = self._cached_epoch(epoch)
        rows = row_order[index * self._rows : (index + 1) * self._rows]
        sizes = np.zeros(self._rows, np.int64)
        sizes[: len(rows)] = self._offsets[rows + 1] - self._offsets[rows]
        pairs = np.concatenate([self._pairs[self._offsets[row] : self._offsets[row + 1]] for row in rows])
        return BatchRows(self.shapes[0], pairs, np.concatenate([[0], np.cumsum(sizes)]))


PLANS = {"buckets": BucketPlan, "packed": PackedPlan}


def random_order(number: int, seed: int, epoch: int, stream: int) -> np.ndarray:
    """A permutation of ``number`` things that depends on nothing else, the version of numpy included.

    Raw output of a counter-based generator (Salmon et al. 2011, Philox), which numpy guarantees, is sorted;
    ``Generator.permutation`` may change between versions. ``stream`` separates the orders of one epoch.
    """
    generator = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=np.array([0, 0, 0, stream], np.uint64))
    return np.argsort(generator.random_raw(number), kind="stable")
