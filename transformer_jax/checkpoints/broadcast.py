"""Arrays that several processes hold: each shard is read by one device, and broadcast when all processes have read theirs.

Orbax's ``SingleReplicaArrayHandler`` broadcasts while it reads: the others would wait for a process that cannot read.
"""

import math
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array, PyTree

UNREAD = ...
"""Orbax's placeholder for an array that it does not read."""


def read_once(like: PyTree) -> PyTree:
    """``one_replica(like)``, ``UNREAD`` where this process has none of the devices; one process reads all."""
    if jax.process_count() == 1:
        return like
    is_here = lambda leaf, one: not replica_axes(leaf) or one.sharding.addressable_devices  # noqa: E731
    return jax.tree.map(lambda leaf, one: one if is_here(leaf, one) else UNREAD, like, one_replica(like))


def one_replica(like: PyTree) -> PyTree:
    """``like`` with shardings over one replica of each array.

    Each replica reads an equal part of the bytes, in consecutive arrays, since their files have them in this order.
    """
    total = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
    before = 0

    def of_one_replica(leaf: Any) -> Any:
        nonlocal before
        share = before / max(total, 1)
        before += math.prod(leaf.shape) * leaf.dtype.itemsize
        if not (axes := replica_axes(leaf)):
            return leaf
        mesh = leaf.sharding.mesh
        sizes = [mesh.shape[axis] for axis in axes]
        chosen = dict(
            zip(axes, np.unravel_index(min(int(share * math.prod(sizes)), math.prod(sizes) - 1), sizes), strict=True)
        )
        index = (slice(chosen[axis], chosen[axis] + 1) if axis in chosen else slice(None) for axis in mesh.axis_names)
        one = NamedSharding(Mesh(mesh.devices[tuple(index)], mesh.axis_names), leaf.sharding.spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=one)

    return jax.tree.map(of_one_replica, like)


def broadcast(parts: PyTree, like: PyTree) -> PyTree:
    """Arrays with the shardings of ``like`` from ``parts``, which were read as ``read_once(like)``; deletes ``parts``.

    All processes call it.
    """
    if jax.process_count() == 1:
        return parts
    return jax.tree.map(lambda leaf, part: _broadcast(part, leaf) if replica_axes(leaf) else part, like, parts)


def replica_axes(leaf: Any) -> tuple[str, ...]:
    """The axes of the mesh over which an array is replicated; none of an array of NumPy."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return ()
    used = jax.tree.leaves(tuple(sharding.spec))
    return tuple(axis for axis, size in sharding.mesh.shape.items() if size > 1 and axis not in used)


def _broadcast(part: Any, like: Any) -> Array:
    axes = replica_axes(like)
    stacked = NamedSharding(like.sharding.mesh, P(axes, *like.sharding.spec))
    shape = (math.prod(stacked.mesh.shape[axis] for axis in axes), *like.shape)
    held = {} if part is UNREAD else {shard.device: shard.data[None] for shard in part.addressable_shards}
    zeros = np.zeros(stacked.shard_shape(shape), like.dtype)
    shards = [held[each] if each in held else jax.device_put(zeros, each) for each in stacked.addressable_devices]
    whole = _sum(like.sharding)(jax.make_array_from_single_device_arrays(shape, stacked, shards))
    # No more than one array is in memory twice.
    jax.block_until_ready(whole)
    if part is not UNREAD:
        part.delete()
    return whole


@cache
def _sum(sharding: NamedSharding) -> Any:
    """The program that adds replicas, all zero but one, as bits: 0.0 + -0.0 would be 0.0."""

    def add(stacked: Array) -> Array:
        bits = stacked.view(f"uint{8 * stacked.dtype.itemsize}")
        return bits.sum(0, dtype=bits.dtype).view(stacked.dtype)

    return jax.jit(add, out_shardings=sharding)
