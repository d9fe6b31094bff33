"""Choice of JAX's platforms before it starts."""

import os
from importlib.util import find_spec
from pathlib import Path

ACCELERATORS = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*", "kfd")


def skip_missing_tpu(devices: Path = Path("/dev")) -> None:
    """Keeps an installed libtpu, which preflight needs, from looking for a TPU on a machine that has no accelerator.

    Does nothing where ``JAX_PLATFORMS`` was set, or any accelerator is here.
    """
    if "JAX_PLATFORMS" in os.environ or find_spec("libtpu") is None:
        return
    if not any(next(devices.glob(pattern), None) for pattern in ACCELERATORS):
        os.environ["JAX_PLATFORMS"] = "cpu"
