"""Bytes that a device sends along each axis of the interconnect: a torus of TPUs, or GPUs in hosts and a network."""

from collections.abc import Sequence

from jax.sharding import Mesh

from transformer_jax.preflight.collectives import Collective

TORUS = ("x", "y", "z")
HOSTS = ("NVLink", "network")


def sent_along(collectives: Sequence[Collective], mesh: Mesh) -> dict[str, float]:
    """Bytes by the name of the axis."""
    if mesh.devices.flat[0].platform == "gpu":
        hosts = [device.process_index for device in mesh.devices.flat]
        return dict(zip(HOSTS, bytes_within_and_between(collectives, hosts), strict=True))
    along = bytes_along_axes(collectives, coordinates_of(mesh))
    return dict(zip(TORUS, along, strict=False))


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


def bytes_within_and_between(collectives: Sequence[Collective], hosts: Sequence[int]) -> tuple[float, float]:
    """Bytes that a GPU sends within its host and to others; ``hosts`` are those of the devices.

    A group within a host uses NVLink alone. One over several hosts runs a ring through each member's network adapter, with an
    equal part of the data, so that of k members in a host each sends one part in k over the network; of an all-to-all,
    whatever is for another host.
    """
    within = between = 0.0
    for collective in collectives:
        members = [hosts[member] for member in collective.members]
        here = members.count(members[0])
        if here == len(members):
            share = 0.0
        elif collective.kind == "all-to-all":
            share = (len(members) - here) / (len(members) - 1)
        else:
            share = 1 / here
        within += collective.wire_bytes * (1 - share)
        between += collective.wire_bytes * share
    return within, between
