"""Devices that a step can be compiled for, with their speeds and memory.

TPU figures are those of the pages cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e} (read 2026): peak bfloat16, memory, memory
bandwidth, and the bandwidth of interconnect a chip, both directions of all its links.
"""

import os
from typing import NamedTuple

import jax

from transformer_jax.config import ConfigError


class Chip(NamedTuple):
    """Operations a second (bfloat16), bytes of memory, bytes a second to memory and along one axis of the torus."""

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    ring_bandwidth: float


TERA, GIGA = 1e12, 1e9
# Around one axis of the torus a chip sends over two of its links, one to each neighbor: as much as one link carries both ways.
# Two-dimensional tori have four links a chip, three-dimensional ones six. Small slices are no closed tori and reach less.
CHIPS = {
    "v4": Chip("TPU v4", 275 * TERA, 32 * 2**30, 1200 * GIGA, 600 * GIGA / 6),
    "v5e": Chip("TPU v5e", 197 * TERA, 16 * 2**30, 819 * GIGA, 400 * GIGA / 4),
    "v5p": Chip("TPU v5p", 459 * TERA, 95 * 2**30, 2765 * GIGA, 1200 * GIGA / 6),
    "v6e": Chip("TPU v6e", 918 * TERA, 32 * 2**30, 1640 * GIGA, 800 * GIGA / 4),
}


# Otherwise libtpu asks the network what machine this is.
# Nothing is run on a chip, so that several compilations at once do not take it from each other.
OFFLINE = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


class Topology(NamedTuple):
    """The devices of a topology; ``chip`` is None where nothing is known of their speed."""

    name: str
    devices: list[jax.Device]
    chip: Chip | None


def open_topology(name: str) -> Topology:
    """The devices of ``v5e:16x16`` (any TPU slice) or ``cpu:8``, without having them.

    Must come before anything else uses JAX. Raises ConfigError for a name that is none, and when libtpu is not installed.
    """
    kind, _, size = name.partition(":")
    if kind == "cpu" and size.isdigit() and int(size) > 0:
        return Topology(name, _cpu_devices(int(size)), None)
    if kind not in CHIPS or not all(part.isdigit() for part in size.split("x")):
        kinds = ", ".join(CHIPS)
        raise ConfigError(
            f"--topology: {name!r} is not KIND:SIZE such as v5e:16x16, v5p:4x4x8 or cpu:8; kinds: {kinds}, cpu"
        )
    from jax.experimental import topologies

    for variable, value in OFFLINE.items():
        os.environ.setdefault(variable, value)
    try:
        devices = topologies.get_topology_desc(name, platform="tpu").devices
    except Exception as error:
        # Whatever it is, it comes from the plugin: not installed, or a shape that no slice has.
        first_line = str(error).partition("\n")[0]
        raise ConfigError(
            f"--topology: {name}: {first_line}; needs libtpu (pip install libtpu) and a shape that slices have"
        ) from None
    return Topology(name, list(devices), CHIPS[kind])


def _cpu_devices(count: int) -> list[jax.Device]:
    """Pretended ones, unless JAX already runs with as many."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        if len(jax.devices("cpu")) < count:
            raise ConfigError(f"--topology: JAX already runs with {len(jax.devices('cpu'))} devices") from None
    return jax.devices("cpu")[:count]
