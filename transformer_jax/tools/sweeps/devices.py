"""Assignment of the devices of a host to the workers of a sweep."""

import os
from pathlib import Path

from transformer_jax.config import ConfigError

Environment = dict[str, str]

# The identifiers that JAX's libtpu set-up uses.
GOOGLE = "0x1ae0"
TPU_CHIPS = ("0x0027", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")


def gpus() -> list[str]:
    """The NVIDIA GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip()]
    # CUDA counts the visible ones: in a container with the fourth GPU of a host, that is number 0.
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def has_tpu() -> bool:
    """Whether the host has TPU chips: Google's PCI devices of these numbers, v2 to v6e."""
    for device in Path("/sys/bus/pci/devices").glob("*/device"):
        vendor = device.with_name("vendor")
        if vendor.is_file() and vendor.read_text().strip() == GOOGLE and device.read_text().strip() in TPU_CHIPS:
            return True
    return False


def default_workers() -> int:
    """Default number of workers of a host: one per GPU, else one."""
    return max(len(gpus()), 1)


def environments(workers: int, devices: list[str]) -> list[Environment]:
    """Variables added to each worker's environment: several GPUs per worker, or several workers per GPU with equal memory.

    ``environments(2, ["0", "1", "2", "3"])`` is ``[{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]``. Without
    GPUs, and for one worker, nothing. Raises ConfigError when GPUs and workers do not divide: some would be faster than others.
    """
    if not devices or workers == 1:
        return [{} for _ in range(workers)]
    if workers > len(devices):
        if workers % len(devices):
            raise ConfigError(
                f"--workers: {workers} do not divide over {len(devices)} GPUs; use {workers // len(devices) * len(devices)}"
            )
        share = workers // len(devices)
        memory = f"{0.9 / share:.3f}"
        return [
            {"CUDA_VISIBLE_DEVICES": devices[number % len(devices)], "XLA_PYTHON_CLIENT_MEM_FRACTION": memory}
            for number in range(workers)
        ]
    if len(devices) % workers:
        most = max(number for number in range(1, workers) if len(devices) % number == 0)
        raise ConfigError(f"--workers: {len(devices)} GPUs do not divide over {workers} workers; use {most}")
    each = len(devices) // workers
    return [{"CUDA_VISIBLE_DEVICES": ",".join(devices[number * each :][:each])} for number in range(workers)]


def cores_of(number: int, workers: int, cores: list[int]) -> list[int]:
    """The processor cores of one of the workers: ``cores_of(1, 2, [0, 1, 2, 3])`` is ``[2, 3]``; all where they are few."""
    each = len(cores) // workers
    return cores[number * each :][:each] if each else cores
