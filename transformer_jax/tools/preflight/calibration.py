"""Measured speeds of devices in a file, which replace the figures of data sheets."""

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array
from transformer_jax.config import ConfigError
from transformer_jax.tools.preflight.chips import Chip, Topology
from transformer_jax.tools.preflight.collectives import axis_names, coordinates_of


class Calibration(NamedTuple):
    """Speeds of a device: FLOP/s by operand type, bytes/s to memory and along interconnects."""

    device: str
    devices: int
    matmul_flops: dict[str, float]
    memory_bandwidth: float
    links: dict[str, float]
    jax: str


class Sizes(NamedTuple):
    """Rows of a square matrix, bytes to copy, bytes to sum over devices."""

    matrix: int
    copied: int
    summed: int


LARGE = Sizes(matrix=8192, copied=2**30, summed=2**28)
# Enough for a CPU.
SMALL = Sizes(matrix=1024, copied=2**26, summed=2**22)
REPEATS = 7


def measure(devices: Sequence[jax.Device], sizes: Sizes | None = None) -> Calibration:
    """Measure the first device, and sums over devices along each axis that has several."""
    sizes = sizes or (SMALL if devices[0].platform == "cpu" else LARGE)
    array = jax.device_put(jnp.ones(sizes.copied // 4, jnp.float32), devices[0])
    return Calibration(
        device=devices[0].device_kind,
        devices=len(devices),
        matmul_flops={dtype: _matmul_flops(devices[0], sizes.matrix, dtype) for dtype in ("bfloat16", "float32")},
        memory_bandwidth=2 * array.nbytes / _seconds(jax.jit(lambda values: values * 2), array),
        links=link_bandwidths(devices, sizes.summed),
        jax=jax.__version__,
    )


def _matmul_flops(device: jax.Device, rows: int, dtype: str) -> float:
    """Return the FLOP/s of a product of square matrices with a float32 result."""
    matrix = jax.device_put(jnp.ones((rows, rows), dtype), device)
    multiply = jax.jit(lambda left, right: jnp.matmul(left, right, preferred_element_type=jnp.float32))
    return 2 * rows**3 / _seconds(multiply, matrix, matrix)


def link_bandwidths(devices: Sequence[jax.Device], size: int) -> dict[str, float]:
    """Return the bytes/s that a device sends in a ring all-reduce of ``size`` bytes, by axis."""
    names, coordinates = axis_names(devices), coordinates_of(devices)
    shape = [len({coordinate[axis] for coordinate in coordinates}) for axis in range(len(names))]
    order = sorted(range(len(devices)), key=lambda index: coordinates[index])
    grid = np.array([devices[index] for index in order], object).reshape(shape)
    mesh = Mesh(grid, names, axis_types=(AxisType.Auto,) * len(names))
    array = jax.device_put(jnp.ones((mesh.size, size // 4), jnp.float32), NamedSharding(mesh, P(names)))
    speeds = {}
    for name, members in zip(names, shape, strict=True):
        if members > 1:
            total = jax.shard_map(
                partial(lax.psum, axis_name=name), mesh=mesh, in_specs=P(names), out_specs=P(names), check_vma=False
            )
            speeds[name] = 2 * (members - 1) / members * size / _seconds(jax.jit(total), array)
    return speeds


def _seconds(function: Callable[..., Array], *arguments: Array) -> float:
    """Return the median time of ``REPEATS`` runs after a first one that compiles."""
    jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def to_json(calibration: Calibration) -> str:
    return json.dumps(calibration._asdict(), indent=1) + "\n"


def load_calibration(file: Path) -> Calibration:
    """Read a file that ``calibrate`` wrote. Raise ConfigError if it is invalid."""
    try:
        calibration = Calibration(**json.loads(file.read_text(encoding="utf-8")))
        flops = [calibration.matmul_flops[dtype] for dtype in ("bfloat16", "float32")]
        if not all(
            0 < speed < math.inf for speed in (*flops, calibration.memory_bandwidth, *calibration.links.values())
        ):
            raise ValueError("not all speeds are positive and finite")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError("--calibration", f"{file}: {error}", "transformer-jax calibrate writes one") from None
    return calibration


def _one_name(kind: str) -> str:
    # JAX has two names for some TPUs, and an absent GPU begins with CUDA.
    return {"TPU v5": "TPU v5p"}.get(kind, kind).removeprefix("CUDA ").replace(" lite", "e")


def calibrated(topology: Topology, calibration: Calibration) -> Topology:
    """Return the topology with measured speeds. Other axes keep the figure of the data sheet.

    The devices of ``cpu:N`` share the cores and the memory of the measured device. Raises
    ConfigError if another kind of device was measured.
    """
    kind = topology.devices[0].device_kind
    if _one_name(calibration.device) != _one_name(kind):
        raise ConfigError("--calibration", f"measured on {calibration.device!r}, but {topology.name} is {kind!r}")
    share = len(topology.devices) if topology.devices[0].platform == "cpu" else 1
    flops, float32_flops = (float(calibration.matmul_flops[dtype]) / share for dtype in ("bfloat16", "float32"))
    sheet = topology.chip or Chip("", flops, math.inf, 0.0, {}, float32_flops, float32_flops)
    speeds = {**sheet.links, **calibration.links}
    chip = sheet._replace(
        name=f"{calibration.device} (measured)",
        flops=flops,
        float32_flops=float32_flops,
        exact_flops=sheet.exact_flops * float32_flops / sheet.float32_flops,
        memory_bandwidth=float(calibration.memory_bandwidth) / share,
        links={name: float(speeds[name]) for name in axis_names(topology.devices) if name in speeds},
    )
    return topology._replace(chip=chip)
