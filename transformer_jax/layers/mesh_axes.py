"""Mesh axes that split hidden states [B, L, D], and the local rows of a device."""

from collections.abc import Callable, Sequence
from math import prod

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array, Int

ROW_AXES = ("data", "fsdp")
"""The mesh axes that split the rows of a batch."""
MIN_POSITIONS = 8
"""Fewest positions on a device. Shorter sequences stay whole, such as the beams of a step."""


def splits(length: int, mesh: Mesh, axes: Sequence[str] = ("context",)) -> bool:
    """Return whether ``length`` positions are split over the devices along ``axes``."""
    parts = prod(mesh.shape[axis] for axis in axes)
    return parts > 1 and length % parts == 0 and length >= MIN_POSITIONS * parts


def is_one_device(mesh: Mesh) -> bool:
    """Return whether arrays are local: one device, or inside a ``shard_map`` over all axes."""
    return mesh.size == 1 or set(mesh.axis_names) <= set(jax.sharding.get_abstract_mesh().manual_axes)


def local_rows(count: int) -> tuple[int | Int[Array, ""], int]:
    """Return the index in the batch of the first local row, and the rows of the batch.

    Only inside ``shard_map`` are local rows a part of the batch. Outside, arrays are global,
    however they are sharded.
    """
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(axis for axis in ROW_AXES if axis in mesh.manual_axes)
    if not axes:
        return 0, count
    return lax.axis_index(axes) * count, prod(mesh.shape[axis] for axis in axes) * count


def constrain_rows(mesh: Mesh) -> Callable[[Array], Array]:
    """Return a constraint of arrays [B, ...] and their gradients: split by rows, whole otherwise.

    Without it the compiler may move hidden states between devices instead of gathering the
    parameters of a layer.
    """
    sharding = NamedSharding(mesh, P(ROW_AXES))
    return lambda rows: rows if is_one_device(mesh) else lax.with_sharding_constraint(rows, sharding)
