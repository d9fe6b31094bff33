"""Assignment of pairs to updates, a pure function of (seed, epoch)."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.config import BatchingConfig, ConfigError
from transformer_jax.data.buckets import choose_buckets, max_rows, rows_of
from transformer_jax.data.orders import blocks, cached_epochs, index_type, joined_ranges, random_order
from transformer_jax.data.packing import filled_widths, lengths_of, longest_first, pack_rows, row_widths, tokens_of

# Updates whose shapes are put in order of their first use. Later shapes are compiled in any order.
SHAPES_LOOKED_FOR = 100
# Stream of random numbers for the order of packing. The orders of an epoch have low stream numbers.
PACKING_STREAM = 2**32

Shape = tuple[int, int, int]
"""Rows, source width, target width."""


class BatchRows(NamedTuple):
    """A batch without its tokens: row ``r`` holds ``pairs[offsets[r]:offsets[r + 1]]``."""

    shape: Shape
    pairs: np.ndarray
    offsets: np.ndarray

    def part(self, index: int, count: int) -> "BatchRows":
        """Return part ``index`` of ``count`` equal parts, or raise ValueError if there is none."""
        rows, source_width, target_width = self.shape
        if rows % count or not 0 <= index < count:
            raise ValueError(f"no part {index} of {rows} rows in {count} parts")
        share = rows // count
        offsets = self.offsets[index * share : (index + 1) * share + 1]
        shape = share, source_width, target_width
        return BatchRows(shape, self.pairs[offsets[0] : offsets[-1]], offsets - offsets[0])


class Sides(NamedTuple):
    """A number for the source and for the target."""

    source: float
    target: float


class RowGroup(NamedTuple):
    """Rows of one width: row ``r`` holds ``pairs[offsets[r]:offsets[r + 1]]``.

    ``pairs[r]`` if ``offsets`` is None. ``sizes``: numbers of rows of batches.
    """

    source_width: int
    target_width: int
    pairs: np.ndarray
    offsets: np.ndarray | None
    sizes: list[int]

    @property
    def num_rows(self) -> int:
        return len(self.pairs) if self.offsets is None else len(self.offsets) - 1

    def spans(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first position in ``pairs`` and the number of pairs of ``rows``."""
        if self.offsets is None:
            return rows, np.ones(len(rows), np.int64)
        return self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]


class BatchPlan:
    """All batches of all epochs for pairs of ``lengths`` [2, pairs].

    Every epoch has every pair of the groups once, in the same number of batches. It shuffles the
    rows of a group and, with ``shuffles_batches``, the batches of all groups. Rows of padding
    complete the last batch of a group. A plan depends on lengths, settings and seed, not on devices
    or processes.
    """

    def __init__(self, lengths: np.ndarray, seed: int, groups: Sequence[RowGroup], *, shuffles_batches: bool) -> None:
        self.seed = seed
        self._shuffles_batches = shuffles_batches
        self.num_pairs = lengths.shape[1]
        self._groups = groups
        sizes = [group.sizes for group in groups]
        self._group_of_batch = np.repeat(np.arange(len(groups)), [len(of_group) for of_group in sizes])
        self._rows_of_batch = np.concatenate(sizes)
        self._first_row = np.concatenate([np.cumsum([0, *of_group[:-1]]) for of_group in sizes])
        shapes = ((rows, group.source_width, group.target_width) for group in groups for rows in group.sizes)
        self.batches: dict[Shape, int] = dict(Counter(shapes))
        self.shapes: list[Shape] = list(self.batches)
        self.batches_per_epoch = len(self._rows_of_batch)
        tokens = [int(side.sum(dtype=np.int64)) for side in lengths]
        positions = [sum(count * shape[0] * shape[side] for shape, count in self.batches.items()) for side in (1, 2)]
        self.tokens_per_update = Sides(*(of_side / self.batches_per_epoch for of_side in tokens))
        self.padding_share = Sides(*(1 - kept / of for kept, of in zip(tokens, positions, strict=True)))
        self._cached_epoch = cached_epochs(self._epoch)

    def batch(self, update: int) -> BatchRows:
        if update < 0:
            raise ValueError(f"update {update} is before the first")
        epoch, index = divmod(update, self.batches_per_epoch)
        batch_order, *row_orders = self._cached_epoch(epoch)
        number = batch_order[index]
        group = self._groups[self._group_of_batch[number]]
        first, size = int(self._first_row[number]), int(self._rows_of_batch[number])
        rows = row_orders[self._group_of_batch[number]][first : first + size]
        firsts, held = group.spans(rows)
        sizes = np.zeros(size, np.int64)
        sizes[: len(rows)] = held
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        shape = size, group.source_width, group.target_width
        return BatchRows(shape, group.pairs[joined_ranges(firsts, held)], offsets)

    def shapes_by_need(self, update: int) -> list[Shape]:
        """Return all shapes, in the order of their first use from ``update``."""
        coming = (self.batch(update + ahead).shape for ahead in range(self.batches_per_epoch))
        met = dict.fromkeys(itertools.islice(coming, SHAPES_LOOKED_FOR))
        return [*met, *(shape for shape in self.shapes if shape not in met)]

    def to_json(self) -> dict[str, object]:
        batches = [
            {"rows": rows, "source_width": source, "target_width": target, "batches": count}
            for (rows, source, target), count in self.batches.items()
        ]
        report = {"pairs": self.num_pairs, "batches_per_epoch": self.batches_per_epoch, "batches": batches}
        report |= {"tokens_per_update": self.tokens_per_update._asdict(), "padding_share": self.padding_share._asdict()}
        return report | {"notes": self.notes()}

    def table(self) -> str:
        lines = [f"batches: {self.batches_per_epoch:,} an epoch of {self.num_pairs:,} pairs"]
        for (rows, source, target), count in self.batches.items():
            lines.append(f"  {count:>7,} of {rows:>5} rows, {source:>4} source and {target:>4} target positions each")
        tokens, padding = self.tokens_per_update, self.padding_share
        lines.append(f"  tokens:  {tokens.source:,.0f} source and {tokens.target:,.0f} target tokens an update")
        lines.append(f"  padding: {padding.source:.1%} of source, {padding.target:.1%} of target")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes())])

    def notes(self) -> list[str]:
        if self.batches_per_epoch > len(self.shapes):
            return []
        return ["every shape has only one batch, completed with padding: few pairs for batching.tokens_per_update"]

    def _epoch(self, epoch: int) -> tuple[np.ndarray, ...]:
        """Return the order of the batches of an epoch, and of the rows of groups."""
        numbers = [group.num_rows for group in self._groups]
        if self._shuffles_batches:
            numbers.insert(0, self.batches_per_epoch)
        orders = [random_order(number, self.seed, epoch, stream) for stream, number in enumerate(numbers)]
        return tuple(orders) if self._shuffles_batches else (np.arange(self.batches_per_epoch), *orders)


def plan_batches(
    lengths: np.ndarray, config: BatchingConfig, seed: int, epoch_pairs: np.ndarray | None = None
) -> BatchPlan:
    """Return the plan for pairs of ``lengths`` [2, pairs], EOS included.

    ``epoch_pairs``: the pairs of an epoch, by default all once. Raises ConfigError for a pair that
    is longer than a packed row, and ValueError without pairs.
    """
    if not lengths.shape[1]:
        raise ValueError("no pairs to make batches of")
    lengths = np.asfortranarray(lengths) if epoch_pairs is None else lengths_of(lengths, epoch_pairs)
    groups = GROUPS[config.kind, config.count](lengths, config, seed)
    if epoch_pairs is not None:
        groups = [group._replace(pairs=epoch_pairs[group.pairs]) for group in groups]
    return BatchPlan(lengths, seed, groups, shuffles_batches=(config.kind, config.count) != ("packed", "positions"))


def bucket_groups(lengths: np.ndarray, config: BatchingConfig, seed: int) -> list[RowGroup]:
    """Return batches of pairs of similar lengths, one pair a row."""
    limits = config.num_buckets, config.tokens_per_update, config.row_multiple, config.width_step
    buckets = choose_buckets(lengths, *limits)
    bucket_of = np.searchsorted([bucket.widest for bucket in buckets], np.arange(buckets[-1].widest + 1))
    members: list[list[np.ndarray]] = [[] for _ in buckets]
    for begin, end in blocks(lengths.shape[1]):
        of_pair = bucket_of[np.maximum(*lengths[:, begin:end])]
        for number, blocks_of_bucket in enumerate(members):
            pairs = np.flatnonzero(of_pair == number) + begin
            blocks_of_bucket.append(pairs.astype(index_type(lengths.shape[1])))
    groups = []
    for bucket, blocks_of_bucket in zip(buckets, members, strict=True):
        pairs = np.concatenate(blocks_of_bucket)
        blocks_of_bucket.clear()
        sizes = [bucket.rows] * bucket.num_batches
        groups.append(RowGroup(bucket.source_width, bucket.target_width, pairs, None, sizes))
    return groups


def packed_groups(lengths: np.ndarray, config: BatchingConfig, seed: int) -> list[RowGroup]:
    """Return rows of several pairs, packed once in a random order, which epochs shuffle."""
    groups, tokens_left = [], int(lengths.sum(dtype=np.int64))
    widths = row_widths(lengths, config.packed_length, config.width_step)
    # Without a name here, so that it is freed early.
    by_width = filled_widths(
        lengths, random_order(lengths.shape[1], seed, 0, PACKING_STREAM), widths, config.tokens_per_update
    )
    for members, sides in by_width:
        members, lanes = longest_first(lengths, members, sides)
        pairs, offsets = pack_rows(lengths, members, sides, lanes)
        # The narrowest rows are last, and hold the other pairs.
        tokens = tokens_left if sides == widths[0] else tokens_of(lengths, pairs)
        tokens_left -= tokens
        batches = round(tokens / 2 / config.tokens_per_update)
        limit = max_rows(max(sides), config.tokens_per_update, config.row_multiple)
        sizes = even_sizes(len(offsets) - 1, batches, limit, config.row_multiple)
        groups.append(RowGroup(*sides, pairs, offsets, sizes))
    return groups


def fixed_width_groups(lengths: np.ndarray, config: BatchingConfig, seed: int) -> list[RowGroup]:
    """Return packed rows with the same width on both sides, in batches of one size."""
    width, longest = config.packed_length, int(lengths.max())
    if longest > width:
        remedy = f"raise it to {longest}, or lower data.max_source_tokens and data.max_target_tokens to {width - 1}"
        raise ConfigError("batching.packed_length", f"{width} is less than the longest sentence, {longest}", remedy)
    order = random_order(lengths.shape[1], seed, epoch=0, stream=1)
    pairs, offsets = pack_rows(lengths, order, (width, width))
    rows = rows_of(width, config.tokens_per_update, config.row_multiple)
    sizes = [rows] * -(-(len(offsets) - 1) // rows)
    return [RowGroup(width, width, pairs, offsets, sizes)]


GROUPS = {
    ("buckets", "positions"): bucket_groups,
    ("packed", "positions"): fixed_width_groups,
    ("packed", "tokens"): packed_groups,
}
"""By ``batching.kind`` and ``batching.count``."""


def even_sizes(rows: int, batches: int, limit: int, multiple: int) -> list[int]:
    """Return the sizes of ``batches`` batches for ``rows`` rows, multiples of ``multiple``.

    They differ by at most one multiple: 100 rows in 3 batches of multiples of 8 are [40, 32, 32].
    There are more batches if one would exceed ``limit`` rows.
    """
    units = -(-rows // multiple)
    batches = min(max(batches, -(-rows // limit)), units)
    size, larger = divmod(units, batches)
    return [(size + 1) * multiple] * larger + [size * multiple] * (batches - larger)
