"""Bytes that a device sends along each axis of the interconnect: a torus of TPUs, or GPUs in hosts and a network."""

from collections import Counter
from collections.abc import Sequence

import jax

from transformer_jax.preflight.collectives import Collective

TORUS = ("x", "y", "z")
HOSTS = ("NVLink", "network")


def sent_along(collectives: Sequence[Collective], devices: Sequence[jax.Device]) -> dict[str, float]:
    """Bytes by the name of the axis; ``devices`` are in the order of the mesh."""
    hosts = [device.process_index for device in devices]
    sent: tuple[float, ...] = (
        bytes_within_and_between(collectives, hosts)
        if _are_gpus(devices)
        else bytes_along_axes(collectives, coordinates_of(devices))
    )
    return dict(zip(axis_names(devices), sent, strict=True))


def axis_names(devices: Sequence[jax.Device]) -> tuple[str, ...]:
    """Names of the axes of the interconnect of these devices."""
    return HOSTS if _are_gpus(devices) else TORUS[: len(coordinates_of(devices)[0])]


def coordinates_of(devices: Sequence[jax.Device]) -> list[tuple[int, ...]]:
    """Coordinates in the torus; of GPUs the place within the host and the host; other devices are in a row."""
    if _are_gpus(devices):
        seen: Counter[int] = Counter()
        places: list[tuple[int, ...]] = []
        for device in devices:
            places.append((seen[device.process_index], device.process_index))
            seen[device.process_index] += 1
        return places
    return [tuple(getattr(device, "coords", (place,))) for place, device in enumerate(devices)]


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


def _are_gpus(devices: Sequence[jax.Device]) -> bool:
    return devices[0].platform == "gpu"
