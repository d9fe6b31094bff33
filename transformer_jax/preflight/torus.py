"""Bytes that a device sends along each axis of the torus that connects the devices."""

from collections.abc import Sequence

from jax.sharding import Mesh

from transformer_jax.preflight.collectives import Collective


def coordinates_of(mesh: Mesh) -> list[tuple[int, ...]]:
    """Coordinates of the devices in the torus, in the order of the mesh; devices without coordinates are in a row."""
    return [tuple(getattr(device, "coords", (place,))) for place, device in enumerate(mesh.devices.flat)]


def bytes_along_axes(collectives: Sequence[Collective], coordinates: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
    """Bytes sent along each axis: those of a collective, spread evenly over the axes in which its members differ."""
    along = [0.0] * len(coordinates[0])
    for collective in collectives:
        places = zip(*(coordinates[member] for member in collective.members), strict=True)
        axes = [axis for axis, values in enumerate(places) if len(set(values)) > 1]
        for axis in axes:
            along[axis] += collective.wire_bytes / len(axes)
    return tuple(along)
