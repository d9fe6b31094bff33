"""The environment of the processes that tests start."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def process_environment(devices: int = 1, *, cached: bool = True, **variables: str) -> dict[str, str]:
    """As here, with another number of fake devices, and with ``variables``.

    ``cached=False``: without the compilation cache, for a process that is killed and might leave half an entry in it.
    """
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    flags.append(f"--xla_force_host_platform_device_count={devices}")
    cache = {"JAX_ENABLE_COMPILATION_CACHE": str(cached).lower()}
    return os.environ | cache | {"XLA_FLAGS": " ".join(flags), "PYTHONPATH": str(ROOT)} | variables
