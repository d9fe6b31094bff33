"""The mesh axes that split a batch, and random numbers by a row's place in it: those of one device, however it is split."""

from collections.abc import Sequence
from math import prod

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from transformer_jax.array_types import Array, Int

ROW_AXES = ("data", "fsdp")
"""The mesh axes that split the rows of a batch."""
FEWEST_POSITIONS = 8
"""On a device; fewer stay together, as the beams of a step of decoding mostly are."""


def splits(length: int, mesh: Mesh, axes: Sequence[str] = ("context",)) -> bool:
    """Whether the positions of sequences so long are split over the devices along ``axes``."""
    parts = prod(mesh.shape[axis] for axis in axes)
    return parts > 1 and length % parts == 0 and length >= FEWEST_POSITIONS * parts


def is_one_device(mesh: Mesh) -> bool:
    """Whether arrays are those of one device of ``mesh``: it has no other, or a ``shard_map`` over all of it is around."""
    return mesh.size == 1 or set(mesh.axis_names) <= set(jax.sharding.get_abstract_mesh().manual_axes)


def place_of_rows(count: int) -> tuple[int | Int[Array, ""], int]:
    """The place in the batch of the first of ``count`` local rows, and the rows of the whole batch.

    Local rows are part of a batch only inside ``shard_map``; elsewhere the arrays are those of the batch, wherever they lie.
    """
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(axis for axis in ROW_AXES if axis in mesh.manual_axes)
    if not axes:
        return 0, count
    return lax.axis_index(axes) * count, prod(mesh.shape[axis] for axis in axes) * count


def row_keys(key: Array, count: int) -> Array:
    """A key [B] for each of ``count`` local rows, by its place in the batch."""
    first, _ = place_of_rows(count)
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(first + jnp.arange(count))
