"""Random numbers by a row's place in the batch, so that a batch split over devices draws those of one device."""

from math import prod

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Int

ROW_AXES = ("data", "fsdp")
"""The mesh axes that split the rows of a batch."""


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
