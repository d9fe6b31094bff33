"""The layout of devices in a mesh, as their connections suggest."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.experimental import mesh_utils

from transformer_jax.config import ConfigError


def laid_out(devices: Sequence[Any], sizes: Sequence[int]) -> np.ndarray:
    """The devices in the shape ``sizes`` of the axes; those of several slices, which a slow network connects, as a hybrid mesh.

    The first axes run between slices, as far as they can: gradients then cross the network once an update, where parameters
    would at every layer. Raises ConfigError for slices of different sizes.
    """
    counts = Counter(getattr(device, "slice_index", 0) for device in devices)
    slices = len(counts)
    if len(set(counts.values())) > 1:
        raise ConfigError(f"mesh: slices of {sorted(counts.values())} devices cannot share one; use slices of one size")
    if slices == 1:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    between: list[int] = []
    for size in sizes:
        between.append(math.gcd(size, slices // math.prod(between)))
    within = [size // count for size, count in zip(sizes, between, strict=True)]
    return mesh_utils.create_hybrid_device_mesh(within, between, devices, allow_split_physical_axes=True)
