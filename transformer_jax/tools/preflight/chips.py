"""Devices that a step can be compiled for, with their speeds and memory.

TPU figures are those of the pages cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e} (read 2026): peak bfloat16, memory, memory
bandwidth, and the bandwidth of interconnect a chip, both directions of all its links. GPU figures are those of NVIDIA's data
sheets of the SXM modules, dense: peak bfloat16 and TF32, half of NVLink's bandwidth (one direction), and the network of its DGX
machines, an adapter for each GPU (HDR or NDR InfiniBand). The network between slices of TPUs is the data center network of
their pages, of a chip, or of a pod divided by its chips; the page of v4 has none.
"""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import jax

from transformer_jax.config import ConfigError
from transformer_jax.tools.preflight.gpus import SPECS, fact_of, gpu_devices, hosts_and_gpus
from transformer_jax.tools.preflight.interconnect import NETWORK, NVLINK, TORUS


class Chip(NamedTuple):
    """Operations a second, bytes of memory for a program, bytes a second.

    ``flops`` are those of bfloat16 products, ``float32_flops`` of products called float32, which on a TPU are one pass of
    bfloat16 and on a GPU TF32. ``links`` are the bytes a second that a chip sends along each axis of the interconnect, by its
    name.
    """

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    links: Mapping[str, float]
    float32_flops: float

    def peak(self, compute_dtype: str) -> float:
        """Operations a second with operands of this type."""
        return self.flops if compute_dtype == "bfloat16" else self.float32_flops


OF_GPU_MEMORY = 0.8
"""The share of a GPU's memory that XLA's compiler plans with."""


def _tpu(
    name: str,
    flops: float,
    memory: float,
    memory_bandwidth: float,
    interconnect: float,
    axes: int,
    network: float = 0.0,
) -> Chip:
    # Around one axis of the torus a chip sends over two of its links, one to each neighbor: as much as one link carries both
    # ways, and there are twice as many links as axes. Small slices are no closed tori and reach less.
    ring = interconnect / (2 * axes)
    links = dict.fromkeys(TORUS[:axes], ring) | ({NETWORK: network} if network else {})
    return Chip(name, flops, memory, memory_bandwidth, links, float32_flops=flops)


def _gpu(kind: str, name: str, flops: float, float32_flops: float, nvlink: float, network: float) -> Chip:
    memory, bandwidth = fact_of(kind, "device_memory_size"), fact_of(kind, "memory_bandwidth")
    return Chip(name, flops, OF_GPU_MEMORY * memory, bandwidth, {NVLINK: nvlink, NETWORK: network}, float32_flops)


GIB = 2.0**30
CHIPS = {
    "v4": _tpu("TPU v4", 275e12, 32 * GIB, 1200e9, 600e9, axes=3),
    "v5e": _tpu("TPU v5e", 197e12, 16 * GIB, 819e9, 400e9, axes=2, network=3.125e9),
    "v5p": _tpu("TPU v5p", 459e12, 95 * GIB, 2765e9, 1200e9, axes=3, network=6.25e9),
    "v6e": _tpu("TPU v6e", 918e12, 32 * GIB, 1640e9, 800e9, axes=2, network=12.5e9),
    "a100": _gpu("a100", "A100 SXM 80 GB", 312e12, 156e12, nvlink=300e9, network=25e9),
    "h100": _gpu("h100", "H100 SXM 80 GB", 989e12, 494.5e12, nvlink=450e9, network=50e9),
    "h200": _gpu("h200", "H200 SXM 141 GB", 989e12, 494.5e12, nvlink=450e9, network=50e9),
    "b200": _gpu("b200", "B200 SXM 180 GB", 2250e12, 1125e12, nvlink=900e9, network=50e9),
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
    """The devices of ``v5e:16x16`` (any TPU slice), ``2xv5e:16x16`` (two of them), ``h100:2x8`` (hosts x GPUs) or ``cpu:8``.

    None of them need be here.

    Must come before anything else uses JAX. Raises ConfigError for a name that is none, and when what compiles for them is
    not installed.
    """
    slices, kind, size = _parsed(name)
    if kind == "cpu" and size.isdigit() and int(size) > 0:
        return Topology(name, _cpu_devices(int(size)), None)
    if kind not in CHIPS or not all(part.isdigit() for part in size.split("x")):
        kinds = ", ".join(CHIPS)
        raise ConfigError(
            f"--topology: {name!r} is not KIND:SIZE such as v5e:16x16, 2xv5e:16x16, h100:2x8 or cpu:8; kinds: {kinds}, cpu"
        )
    if slices > 1 and (kind in SPECS or NETWORK not in CHIPS[kind].links):
        raise ConfigError(f"--topology: {name}: several slices are of v5e, v5p or v6e; hosts of GPUs are h100:2x8")
    if kind in SPECS:
        return Topology(name, gpu_devices(kind, *hosts_and_gpus(kind, size)), CHIPS[kind])
    return Topology(name, _tpu_devices(f"{kind}:{size}", slices), CHIPS[kind])


def _parsed(name: str) -> tuple[int, str, str]:
    """Number of slices, kind and size."""
    found = re.fullmatch(r"(?:([1-9]\d{0,3})x(?=[a-z]))?([a-z]\w*):([\dx]+)", name)
    return (int(found[1] or 1), found[2], found[3]) if found else (1, "", "")


def _tpu_devices(name: str, slices: int) -> list[jax.Device]:
    from jax.experimental import topologies

    for variable, value in OFFLINE.items():
        os.environ.setdefault(variable, value)
    try:
        several = {"num_slices": slices} if slices > 1 else {}
        return list(topologies.get_topology_desc(name, platform="tpu", **several).devices)
    except Exception as error:
        # Whatever it is, it comes from the plugin: not installed, or a shape that no slice has.
        first_line = str(error).partition("\n")[0]
        raise ConfigError(
            f"--topology: {name}: {first_line}; needs libtpu (pip install libtpu) and a shape that slices have"
        ) from None


def _cpu_devices(count: int) -> list[jax.Device]:
    """Pretended ones, unless JAX already runs with as many."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        if len(jax.devices("cpu")) < count:
            raise ConfigError(f"--topology: JAX already runs with {len(jax.devices('cpu'))} devices") from None
    return jax.devices("cpu")[:count]
