"""Bytes that a host, with one process or several, writes and reads: checkpoints, and token ids of batches."""

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.broadcast import one_replica


class HostTraffic(NamedTuple):
    """Bytes of a checkpoint, and of them the largest parts that one of ``hosts`` writes, and reads when the run resumes.

    ``read_for_update``: the most bytes that a host reads from a token store for an update, if the batch has no padding.
    """

    hosts: int
    checkpoint: int
    written: int
    read_at_resume: int
    read_for_update: int


def host_traffic(
    saved: PyTree, restored: PyTree, ids: PyTree, host_of: Callable[[Any], int] = attrgetter("process_index")
) -> HostTraffic:
    """The traffic of ``saved`` arrays, of the ``restored`` ones among them, and of the token ids of a batch.

    All are shapes with shardings; ``host_of`` gives the host of a device.
    """
    leaves = jax.tree.leaves(saved)
    hosts = set(map(host_of, leaves[0].sharding.device_set))
    reads = (_busiest(each, host_of, is_written=False) for each in (one_replica(restored), ids))
    return HostTraffic(len(hosts), sum(map(_bytes, leaves)), _busiest(saved, host_of, is_written=True), *reads)


def _busiest(tree: PyTree, host_of: Callable[[Any], int], *, is_written: bool) -> int:
    moved: Counter[int] = Counter()
    for leaf in jax.tree.leaves(tree):
        shards = [(host_of(device), index) for device, index in leaf.sharding.devices_indices_map(leaf.shape).items()]
        first = {index: host for host, index in reversed(shards)}
        replicas, shard = len(shards) // len(first), leaf.sharding.shard_shape(leaf.shape)
        if not is_written:
            hosts, parts = [host for host, _ in set(shards)], len(first)
        elif any(size % replicas == 0 for size in shard):
            # Each replica of a shard writes an equal part of an axis that they divide (use_replica_parallel of Orbax).
            hosts, parts = [host for host, _ in shards], len(shards)
        else:
            hosts, parts = list(first.values()), len(first)
        for host, number in Counter(hosts).items():
            moved[host] += number * _bytes(leaf) // parts
    return max(moved.values(), default=0)


def _bytes(leaf: Any) -> int:
    return int(leaf.size * leaf.dtype.itemsize)
