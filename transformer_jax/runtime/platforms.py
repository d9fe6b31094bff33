"""Choice of JAX's platforms before it starts."""

import os
from importlib.util import find_spec
from pathlib import Path

ACCELERATORS = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*", "kfd")


PLUGINS = ("libtpu", "jax_cuda13_plugin", "jax_cuda12_plugin")


def skip_missing_accelerators(devices: Path = Path("/dev")) -> None:
    """Keeps installed plugins, which preflight needs, from looking for devices on a machine that has no accelerator.

    Does nothing where ``JAX_PLATFORMS`` was set, or any accelerator is here.
    """
    if "JAX_PLATFORMS" in os.environ or not any(find_spec(plugin) for plugin in PLUGINS):
        return
    if not any(next(devices.glob(pattern), None) for pattern in ACCELERATORS):
        os.environ["JAX_PLATFORMS"] = "cpu"
