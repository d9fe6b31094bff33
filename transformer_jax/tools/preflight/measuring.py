"""Speeds of the devices here: matrix products, memory, and the links between them."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array
from transformer_jax.tools.preflight.calibration import Calibration
from transformer_jax.tools.preflight.interconnect import axis_names, coordinates_of


class Sizes(NamedTuple):
    """Rows of square matrices, bytes of an array that is read and written, bytes that are summed over devices."""

    matrix: int
    copied: int
    summed: int


LARGE = Sizes(matrix=8192, copied=2**30, summed=2**28)
SMALL = Sizes(matrix=1024, copied=2**26, summed=2**22)
"""Enough for a CPU."""
REPEATS = 7


def measure(devices: Sequence[jax.Device], sizes: Sizes | None = None) -> Calibration:
    """Medians of a few runs each, on the first device, and of sums over devices along each axis that has several."""
    sizes = sizes or (SMALL if devices[0].platform == "cpu" else LARGE)
    return Calibration(
        device=devices[0].device_kind,
        devices=len(devices),
        matmul_flops={dtype: matmul_flops(devices[0], sizes.matrix, dtype) for dtype in ("bfloat16", "float32")},
        memory_bandwidth=memory_bandwidth(devices[0], sizes.copied),
        links=link_bandwidths(devices, sizes.summed),
        jax=jax.__version__,
    )


def matmul_flops(device: jax.Device, rows: int, dtype: str) -> float:
    """Operations a second of a product of square matrices, float32 result."""
    matrix = jax.device_put(jnp.ones((rows, rows), dtype), device)
    multiply = jax.jit(lambda left, right: jnp.matmul(left, right, preferred_element_type=jnp.float32))
    return 2 * rows**3 / _seconds(multiply, matrix, matrix)


def memory_bandwidth(device: jax.Device, size: int) -> float:
    """Bytes a second, read and written, of an array of that many."""
    array = jax.device_put(jnp.ones(size // 4, jnp.float32), device)
    return 2 * array.nbytes / _seconds(jax.jit(lambda each: each * 2), array)


def link_bandwidths(devices: Sequence[jax.Device], size: int) -> dict[str, float]:
    """Bytes a second that a device sends in a ring that sums ``size`` bytes along an axis of the interconnect."""
    names = axis_names(devices)
    grid = _grid(devices, len(names))
    mesh = Mesh(grid, names, axis_types=(AxisType.Auto,) * len(names))
    found = {}
    for name, members in zip(names, grid.shape, strict=True):
        if members > 1:
            found[name] = 2 * (members - 1) / members * size / _seconds(*_sum_along(mesh, name, size))
    return found


def _sum_along(mesh: Mesh, axis: str, size: int) -> tuple[Callable[[Array], Array], Array]:
    """A sum of arrays of ``size`` bytes, one on each device, and the arrays."""
    every = P(mesh.axis_names)
    array = jax.device_put(jnp.ones((mesh.size, size // 4), jnp.float32), NamedSharding(mesh, every))
    total = jax.shard_map(
        lambda part: jax.lax.psum(part, axis), mesh=mesh, in_specs=every, out_specs=every, check_vma=False
    )
    return jax.jit(total), array


def _grid(devices: Sequence[jax.Device], axes: int) -> np.ndarray:
    """The devices by their coordinates."""
    coordinates = coordinates_of(devices)
    shape = [len({each[axis] for each in coordinates}) for axis in range(axes)]
    order = sorted(range(len(devices)), key=lambda place: coordinates[place])
    return np.array([devices[place] for place in order], object).reshape(shape)


def _seconds(function: Callable[..., Array], *arguments: Array) -> float:
    """The median of a few runs, after one that compiles."""
    jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
