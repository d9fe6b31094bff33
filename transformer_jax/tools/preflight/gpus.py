"""NVIDIA GPUs that need not be here: their facts as XLA's compiler wants them, and devices to compile for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import NamedTuple

import jax

from transformer_jax.config import ConfigError

GPUS_OF_A_HOST = 8
"""As many as NVLink connects in the machines of all these kinds."""
NOT_INSTALLED = ("No PTX compilation provider", "cuDNN not found", "cuDNN is not detected")


class Spec(NamedTuple):
    """A file in ``gpu_specs``, and the facts in it that are others, by the text before them."""

    file: str
    changes: dict[str, str]


# Where the chip is that of another, the file is too.
SPECS = {
    "a100": Spec("a100.txtpb", {}),
    "h100": Spec("h100.txtpb", {}),
    "h200": Spec(
        "h100.txtpb",
        {
            "  memory_bandwidth": "4800000000000",
            "  device_memory_size": str(139 * 2**30),
            "  name": '"NVIDIA H200"',
            "device_description_str": '"CUDA NVIDIA H200"',
        },
    ),
    "b200": Spec(
        "h100.txtpb",
        {
            "  core_count": "148",
            "  memory_bandwidth": "7672320000000",
            "  l2_cache_size": "132644864",
            "  clock_rate_ghz": "1.965",
            "  device_memory_size": str(178 * 2**30),
            "    major": "10",
            "  platform_version": '"Compute Capability 10.0a"',
            "  pcie_bandwidth": "68719476736",
            "  name": '"NVIDIA B200"',
            "device_description_str": '"CUDA NVIDIA B200"',
        },
    ),
}


def spec_of(kind: str) -> str:
    """The facts of a GPU, the text of a GpuTargetConfigProto."""
    file, changes = SPECS[kind]
    text = resources.files("transformer_jax.tools.preflight").joinpath("gpu_specs", file).read_text(encoding="utf-8")
    changed = []
    for line in text.splitlines():
        field = line.partition(":")[0]
        changed.append(f"{field}: {changes[field]}" if field in changes and ":" in line else line)
    return "\n".join(changed) + "\n"


def fact_of(kind: str, field: str) -> float:
    """A number among them, such as ``memory_bandwidth``."""
    for line in spec_of(kind).splitlines():
        name, _, value = line.strip().partition(": ")
        if name == field:
            return float(value)
    raise KeyError(field)


def hosts_and_gpus(kind: str, size: str) -> tuple[int, int]:
    """Of ``2x8`` 2 and 8, of ``8`` 1 and 8. Raises ConfigError for what no machines of this kind are."""
    numbers = [int(each) if each.isdigit() else 0 for each in size.split("x")]
    hosts, gpus = numbers if len(numbers) == 2 else (1, numbers[0] if len(numbers) == 1 else 0)
    if hosts < 1 or gpus < 1:
        raise ConfigError(f"--topology: {kind}:{size} is not {kind}:GPUS or {kind}:HOSTSxGPUS, such as {kind}:2x8")
    if gpus > GPUS_OF_A_HOST:
        raise ConfigError(
            f"--topology: {kind}:{size} has {gpus} GPUs a host, and hosts have at most {GPUS_OF_A_HOST}; "
            f"{kind}:2x8 is two hosts of eight"
        )
    return hosts, gpus


def gpu_devices(kind: str, hosts: int, gpus: int) -> list[jax.Device]:
    """GPUs of that many hosts, host by host. Raises ConfigError when the plugin is not installed."""
    from jax.experimental import topologies

    # Otherwise the plugin wants the libraries that only running needs.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    try:
        found = topologies.get_topology_desc(platform="cuda", target_config=spec_of(kind), topology=f"{hosts}x1x{gpus}")
    except Exception as error:
        # Whatever it is, it comes from the plugin: not installed, or of another version.
        raise _missing(f"{kind}: {error}") from None
    return list(found.devices)


@contextmanager
def missing_wheels_named() -> Iterator[None]:
    """Raises ConfigError, with the wheels, for what JAX or the compiler raises when a part of it is not installed."""
    try:
        yield
    except RuntimeError as error:
        if any(sign in str(error) for sign in NOT_INSTALLED):
            raise _missing(str(error)) from None
        raise


def _missing(message: str) -> ConfigError:
    first_line = message.partition("\n")[0]
    return ConfigError(
        f"--topology: {first_line}; needs pip install jax-cuda13-plugin=={jax.__version__} nvidia-cuda-nvcc "
        "nvidia-cuda-runtime, for cuDNN attention nvidia-cudnn-cu13 too, and JAX_PLATFORMS=cpu where no GPU is"
    )
