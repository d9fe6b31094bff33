"""Bytes that a device sends along each axis of the interconnect: a torus of TPUs or the links of GPUs in a host, a network."""

from collections import Counter
from collections.abc import Sequence

import jax

from transformer_jax.tools.preflight.collectives import Collective

TORUS = ("x", "y", "z")
NVLINK, NETWORK = "NVLink", "network"


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
    if _are_gpus(devices):
        return NVLINK, NETWORK
    torus = TORUS[: len(_place_in_slice(0, devices[0]))]
    return (*torus, NETWORK) if _slices(devices) > 1 else torus


def coordinates_of(devices: Sequence[jax.Device]) -> list[tuple[int, ...]]:
    """Coordinates in the torus and, of several, the slice; of GPUs the place in the host and the host; others are in a row."""
    if _are_gpus(devices):
        seen: Counter[int] = Counter()
        places: list[tuple[int, ...]] = []
        for device in devices:
            places.append((seen[device.process_index], device.process_index))
            seen[device.process_index] += 1
        return places
    coordinates = [_place_in_slice(place, device) for place, device in enumerate(devices)]
    if _slices(devices) == 1:
        return coordinates
    return [(*each, device.slice_index) for each, device in zip(coordinates, devices, strict=True)]


def bytes_along_axes(collectives: Sequence[Collective], coordinates: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
    """Bytes sent along each axis: those of a collective, spread evenly over the axes in which its members differ.

    The last axis is the network where there are several slices.
    """
    along = [0.0] * len(coordinates[0])
    for collective in collectives:
        if collective.is_between_slices:
            along[-1] += collective.wire_bytes
            continue
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


def _place_in_slice(place: int, device: jax.Device) -> tuple[int, ...]:
    return tuple(getattr(device, "coords", (place,)))


def _slices(devices: Sequence[jax.Device]) -> int:
    return len({getattr(device, "slice_index", 0) for device in devices})


def _are_gpus(devices: Sequence[jax.Device]) -> bool:
    return devices[0].platform == "gpu"
