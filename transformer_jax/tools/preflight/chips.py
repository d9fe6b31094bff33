"""Absent devices to compile for, with their speeds and memory.

TPU figures are from cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e} (read 2026): peak bfloat16, memory,
memory bandwidth, and interconnect bandwidth per chip, both directions of all links. The network
between slices is the data center network per chip, or per pod divided by its chips (v4 has none).
GPU figures are from NVIDIA's data sheets of the SXM modules, without sparsity: peak bfloat16 and
TF32, half of NVLink's bandwidth (one direction), and the network of DGX machines, one adapter per
GPU (HDR or NDR InfiniBand).
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import NamedTuple

import jax

from transformer_jax.config import ConfigError

TORUS = ("x", "y", "z")
NVLINK = "NVLink"
NETWORK = "network"
GIB = 2.0**30
# Share of a GPU's memory that XLA's compiler may use.
GPU_MEMORY_SHARE = 0.8
# GPUs that NVLink connects, in machines of all these kinds.
GPUS_OF_A_HOST = 8
NOT_INSTALLED = ("No PTX compilation provider", "cuDNN not found", "cuDNN is not detected")
# Without the first, libtpu queries the network for its machine. Nothing runs on a chip, so several
# processes may load it.
OFFLINE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

GPUS = ("a100", "h100", "h200", "b200")


def gpu_spec(kind: str) -> str:
    """Return the GpuTargetConfigProto of a GPU as text."""
    return resources.files(__package__).joinpath("gpu_specs", f"{kind}.txtpb").read_text(encoding="utf-8")


def gpu_fact(kind: str, field: str) -> float:
    """Return a number of a spec, such as ``memory_bandwidth``."""
    return float(re.findall(rf"^ *{field}: (.*)$", gpu_spec(kind), re.MULTILINE)[0])


class Chip(NamedTuple):
    """Speeds and memory of a chip: FLOP/s, bytes available to a program, bytes/s.

    Attributes:
        flops: Of bfloat16 products.
        float32_flops: Of float32 products: one bfloat16 pass on a TPU, and TF32 on a GPU.
        exact_flops: Of ``float32_exact``, six bfloat16 passes on a TPU.
        links: Bytes/s that a chip sends along each axis of the interconnect.
    """

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    links: Mapping[str, float]
    float32_flops: float
    exact_flops: float

    def peak(self, compute_dtype: str) -> float:
        """Return the FLOP/s with operands of this type."""
        return {"bfloat16": self.flops, "float32_exact": self.exact_flops}.get(compute_dtype, self.float32_flops)


def _tpu(
    name: str,
    flops: float,
    memory: float,
    memory_bandwidth: float,
    interconnect: float,
    axes: int,
    network: float = 0.0,
) -> Chip:
    # The interconnect bandwidth counts both directions of all links. A chip has two links per axis
    # of the torus, one to each neighbor, and can send interconnect / (2 axes) along an axis. Small
    # slices are not closed tori and reach less.
    links = dict.fromkeys(TORUS[:axes], interconnect / (2 * axes)) | ({NETWORK: network} if network else {})
    return Chip(name, flops, memory, memory_bandwidth, links, float32_flops=flops, exact_flops=flops / 6)


def _gpu(kind: str, name: str, flops: float, exact: float, nvlink: float, network: float) -> Chip:
    memory, bandwidth = gpu_fact(kind, "device_memory_size"), gpu_fact(kind, "memory_bandwidth")
    links = {NVLINK: nvlink, NETWORK: network}
    return Chip(name, flops, GPU_MEMORY_SHARE * memory, bandwidth, links, float32_flops=flops / 2, exact_flops=exact)


CHIPS = {
    "v4": _tpu("TPU v4", 275e12, 32 * GIB, 1200e9, 600e9, axes=3),
    "v5e": _tpu("TPU v5e", 197e12, 16 * GIB, 819e9, 400e9, axes=2, network=3.125e9),
    "v5p": _tpu("TPU v5p", 459e12, 95 * GIB, 2765e9, 1200e9, axes=3, network=6.25e9),
    "v6e": _tpu("TPU v6e", 918e12, 32 * GIB, 1640e9, 800e9, axes=2, network=12.5e9),
    "a100": _gpu("a100", "A100 SXM 80 GB", 312e12, 19.5e12, nvlink=300e9, network=25e9),
    "h100": _gpu("h100", "H100 SXM 80 GB", 989e12, 67e12, nvlink=450e9, network=50e9),
    "h200": _gpu("h200", "H200 SXM 141 GB", 989e12, 67e12, nvlink=450e9, network=50e9),
    "b200": _gpu("b200", "B200 SXM 180 GB", 2250e12, 75e12, nvlink=900e9, network=50e9),
}


class Topology(NamedTuple):
    """The devices of a topology. ``chip`` is None for devices of unknown speed."""

    name: str
    devices: list[jax.Device]
    chip: Chip | None


def open_topology(name: str) -> Topology:
    """Return the devices of a topology.

    ``v5e:16x16`` is a TPU slice, ``2xv5e:16x16`` two slices, ``h100:2x8`` hosts x GPUs, ``cpu:8``
    simulated. Call it before anything else uses JAX. Raises ConfigError for an unknown name, or if
    the compiler for these devices is not installed.
    """
    match = re.fullmatch(r"(?:([1-9]\d{0,3})x(?=[a-z]))?([a-z]\w*):(\d+(?:x\d+)*)", name)
    slices, kind, size = (int(match[1] or 1), match[2], match[3]) if match else (1, "", "")
    if kind == "cpu" and size.isdigit() and int(size) > 0:
        return Topology(name, _cpu_devices(int(size)), None)
    if kind not in CHIPS:
        kinds = ", ".join(CHIPS)
        raise ConfigError(
            "--topology",
            f"{name!r} is not KIND:SIZE such as v5e:16x16, 2xv5e:16x16, h100:2x8 or cpu:8",
            f"kinds: {kinds}, cpu",
        )
    if slices > 1 and (kind in GPUS or NETWORK not in CHIPS[kind].links):
        raise ConfigError(
            "--topology", f"{name}: only v5e, v5p and v6e have several slices", "hosts of GPUs are written h100:2x8"
        )
    devices = _gpu_devices(kind, size) if kind in GPUS else _tpu_devices(f"{kind}:{size}", slices)
    return Topology(name, devices, CHIPS[kind])


def _tpu_devices(name: str, slices: int) -> list[jax.Device]:
    from jax.experimental import topologies

    for variable, value in OFFLINE.items():
        os.environ.setdefault(variable, value)
    try:
        several = {"num_slices": slices} if slices > 1 else {}
        return list(topologies.get_topology_desc(name, platform="tpu", **several).devices)
    except Exception as error:
        # The plugin raises any type: it is not installed, or no slice has this shape.
        first_line = str(error).partition("\n")[0]
        raise ConfigError(
            "--topology", f"{name}: {first_line}", "needs libtpu (pip install libtpu) and a shape that slices have"
        ) from None


def _cpu_devices(count: int) -> list[jax.Device]:
    """Simulate devices, unless JAX already runs with at least ``count``."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        if len(jax.devices("cpu")) < count:
            raise ConfigError("--topology", f"JAX already runs with {len(jax.devices('cpu'))} devices") from None
    return jax.devices("cpu")[:count]


def _gpu_devices(kind: str, size: str) -> list[jax.Device]:
    from jax.experimental import topologies

    hosts, gpus = hosts_and_gpus(kind, size)
    # Otherwise the plugin requires libraries that only execution needs.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    try:
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=gpu_spec(kind), topology=f"{hosts}x1x{gpus}"
        )
    except Exception as error:
        # The plugin raises any type: it is not installed, or has another version.
        raise _missing_wheels(f"{kind}: {error}") from None
    return list(topology.devices)


def hosts_and_gpus(kind: str, size: str) -> tuple[int, int]:
    """Return hosts and GPUs per host: 2 and 8 for ``2x8``, 1 and 8 for ``8``."""
    sizes = [int(part) for part in size.split("x")]
    hosts, gpus = sizes if len(sizes) == 2 else (1, sizes[0])
    if len(sizes) > 2 or hosts < 1 or not 1 <= gpus <= GPUS_OF_A_HOST:
        form = f"{kind}:GPUS or {kind}:HOSTSxGPUS with at most {GPUS_OF_A_HOST} GPUs per host, such as {kind}:2x8"
        raise ConfigError("--topology", f"{kind}:{size} is not {form}")
    return hosts, gpus


@contextmanager
def naming_missing_wheels() -> Iterator[None]:
    """Raise ConfigError with the wheels to install if JAX or the compiler misses a part."""
    try:
        yield
    except RuntimeError as error:
        if any(sign in str(error) for sign in NOT_INSTALLED):
            raise _missing_wheels(str(error)) from None
        raise


def _missing_wheels(message: str) -> ConfigError:
    first_line = message.partition("\n")[0]
    return ConfigError(
        "--topology",
        first_line,
        f"first pip install 'transformer_jax[preflight-gpu]' jax-cuda13-plugin=={jax.__version__}, "
        "and set JAX_PLATFORMS=cpu where no GPU is",
    )
