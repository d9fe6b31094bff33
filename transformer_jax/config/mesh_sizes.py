"""Checks that a mesh and the rows of a batch fit a number of devices: plain arithmetic, without any device."""

import math
from collections.abc import Mapping

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.optimization import MeshConfig


def mesh_sizes(mesh: MeshConfig, device_count: int, whose: str = "that are here") -> dict[str, int]:
    """The size of each axis over ``device_count`` devices: ``{"data": 4, "fsdp": 2, ...}``, the -1 worked out.

    Raises ConfigError, with meshes that would fit, when the axes do not multiply to the number of devices; ``whose`` says of
    which devices it speaks.
    """
    sizes = mesh.sizes
    known = math.prod(size for size in sizes.values() if size != -1)
    if device_count % known == 0:
        sizes = {axis: device_count // known if size == -1 else size for axis, size in sizes.items()}
    if math.prod(sizes.values()) != device_count:
        stated = ", ".join(f"{axis}={size}" for axis, size in mesh.sizes.items())
        raise ConfigError(
            f"mesh: {stated} does not use the {device_count} devices {whose}; "
            f"meshes that fit: {_proposals(device_count)}"
        )
    return sizes


def _proposals(count: int) -> str:
    divisors = [size for size in range(2, count + 1) if count % size == 0][:3]
    others = [f"data=-1,{axis}={size}" for axis in ("fsdp", "tensor") for size in divisors]
    return "; ".join(f"--config.mesh={mesh}" for mesh in (f"data={count}", *others))


def require_rows_divide(row_multiple: int, accumulation_steps: int, sizes: Mapping[str, int]) -> None:
    """Raises ConfigError unless every micro-batch divides over the devices that share the batch, ``sizes`` of a mesh."""
    parts = sizes["data"] * sizes["fsdp"] * accumulation_steps
    if row_multiple % parts:
        raise ConfigError(
            f"batching.row_multiple: {row_multiple} rows do not divide into {parts} parts (mesh data {sizes['data']} x "
            f"fsdp {sizes['fsdp']} x accumulation_steps {accumulation_steps}); use a multiple of {parts}"
        )
