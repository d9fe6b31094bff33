"""Communication of a compiled program: collectives, groups of devices, and links."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.tools.preflight.chips import NETWORK, NVLINK, TORUS
from transformer_jax.tools.preflight.hlo_text import Instruction, arrays_of, bytes_of, computations_of, times_of

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
# The TPU compiler's reduce-scatter, a computation that sums everything and keeps a slice.
SCATTERED = "all-reduce-scatter"

_MEGASCALE = re.compile(r'_xla_megascale_target="\{([\d,]+)\}.*_xla_megascale_transfer_type="(\w+)"')
_CHANNEL = re.compile(r"channel_id=(\d+)")
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)")
_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? \{([^}]*)\}")
_PERMUTATION = re.compile(r"source_target_pairs=\{([\d,{}]*)\}")
_NUMBERING = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_AXIS = re.compile(r"'?([\w.]+)'?(?::\((\d+)\)(\d+))?")


class Collective(NamedTuple):
    """A collective operation: ``bytes`` of its result on a device, run ``times`` times.

    ``members``: the devices of one of its groups, by index in the flattened mesh, or TPU slices if
    ``is_between_slices``.
    """

    kind: str
    bytes: int
    members: tuple[int, ...]
    times: int
    is_between_slices: bool = False

    @property
    def group(self) -> int:
        return len(self.members)

    @property
    def wire_bytes(self) -> float:
        """Bytes that a device sends in all runs, in a ring (Patarasuk and Yuan 2009)."""
        others = (self.group - 1) / self.group
        factors = {"all-reduce": 2 * others, "reduce-scatter": others * self.group, "collective-permute": 1.0}
        return self.times * self.bytes * factors.get(self.kind, others)


def collectives_of(program: str, num_devices: int) -> list[Collective]:
    """Return the collectives of a compiled program. A loop of unknown length counts once."""
    computations = computations_of(program)
    times = times_of(computations)
    calls = [
        call
        for instructions in computations.values()
        for instruction in instructions.values()
        for call in instruction.calls
    ]
    fused = {callee for role, callee in calls if role == "calls"}
    collectives: dict[object, Collective] = {}
    for name, instructions in computations.items():
        for instruction in instructions.values() if times[name] else ():
            if instruction.opcode == "send" and (between := _between_slices(instruction, times[name])):
                collectives[name, instruction.name] = between
            kind = instruction.opcode.removesuffix("-start")
            members = members_of(instruction.line, num_devices) if kind in KINDS else ()
            if len(members) < 2:
                continue
            size = _result_bytes(instruction, kind)
            if kind == "all-reduce" and name.startswith(SCATTERED):
                kind, size = "reduce-scatter", size // len(members)
            # An operation that is started, overlapped and finished in fusions is there three times
            # with one channel. Outside of fusions different operations may share a channel.
            channel = _CHANNEL.search(instruction.line) if name in fused else None
            key = channel[1] if channel else (name, instruction.name)
            collectives.setdefault(key, Collective(kind, size, members, times[name]))
    return list(collectives.values())


def _between_slices(send: Instruction, times: int) -> Collective | None:
    """Return the collective between chips of several TPU slices, through hosts, if it is one."""
    match = _MEGASCALE.search(send.line)
    if not match:
        return None
    kind, members = match[2].lower().replace("_", "-"), _numbers(match[1])
    # The instruction has the size of the operand. The result is a part or a multiple of it.
    parts = {"reduce-scatter": 1 / len(members), "all-gather": len(members)}
    size = int(bytes_of(send.result.partition(", u32")[0]) * parts.get(kind, 1))
    return Collective(kind, size, members, times, is_between_slices=True)


def _result_bytes(instruction: Instruction, kind: str) -> int:
    """Return the bytes of results, without the operands that asynchronous operations return."""
    sizes = [array.bytes for array in arrays_of(instruction.result)]
    if instruction.opcode == kind or kind == "all-reduce":
        return sum(sizes)
    sizes = [size for size in sizes if size > 4]
    return sum(sizes[len(sizes) // 2 :])


def members_of(operation: str, num_devices: int) -> tuple[int, ...]:
    """Return the first group of devices, by index in the flattened mesh, by default all devices.

    ``{{0,1},{2,3}}``, ``[2,2]<=[4]`` and ``mesh['a'=2,'b'=2] {'b'}`` give 0 and 1. A permutation
    gives the first pair of sender and receiver, or one device if nothing is sent.
    """
    if pairs := _PERMUTATION.search(operation):
        sent = [(int(source), int(target)) for source, target in re.findall(r"(\d+),(\d+)", pairs[1])]
        return next((pair for pair in sent if pair[0] != pair[1]), (0,))
    if listed := _LISTED.search(operation):
        return _numbers(listed[1])
    if iota := _IOTA.search(operation):
        return tuple(_numbering(iota[3])[: int(iota[2])].tolist())
    if mesh := _MESH.search(operation):
        return _members_along(mesh[1], mesh[2], mesh[3])
    return tuple(range(num_devices))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _numbering(text: str) -> np.ndarray:
    """Return 0, 3, 1, 4, 2, 5 for ``[2,3]T(1,0)``: a shape, transposed and flattened."""
    match = _NUMBERING.match(text)
    if not match:
        return np.array(_numbers(text))
    sizes = _numbers(match[1])
    order = _numbers(match[2]) if match[2] else tuple(range(len(sizes)))
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(order).ravel()


def _members_along(axes: str, device_ids: str | None, along: str) -> tuple[int, ...]:
    """Return the devices of a mesh ``'a'=2,'b'=4`` along ``'a','b':(2)2``.

    ``:(2)2`` is the factor 2 of 'b' after a factor 2.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'?([\w.]+)'?=(\d+)", axes)}
    strides = {name: math.prod(list(sizes.values())[index + 1 :]) for index, name in enumerate(sizes)}
    members = np.zeros(1, int)
    for name, above, part in _AXIS.findall(along):
        size = int(part) if part else sizes[name]
        stride = strides[name] * (sizes[name] // (int(above) * size) if part else 1)
        members = (members[:, None] + stride * np.arange(size)).ravel()
    numbers = _numbering(device_ids) if device_ids else np.arange(math.prod(sizes.values()))
    return tuple(numbers[members].tolist())


def sent_along(collectives: Sequence[Collective], devices: Sequence[jax.Device]) -> dict[str, float]:
    """Return the bytes that a device sends, by axis. ``devices`` are in the order of the mesh."""
    sent: tuple[float, ...]
    if _are_gpus(devices):
        sent = bytes_within_and_between(collectives, [device.process_index for device in devices])
    else:
        sent = bytes_along_axes(collectives, coordinates_of(devices))
    return dict(zip(axis_names(devices), sent, strict=True))


def axis_names(devices: Sequence[jax.Device]) -> tuple[str, ...]:
    """Return the axes of the interconnect: torus and network of TPUs, or NVLink and network."""
    if _are_gpus(devices):
        return NVLINK, NETWORK
    torus = TORUS[: len(getattr(devices[0], "coords", (0,)))]
    return (*torus, NETWORK) if _slices(devices) > 1 else torus


def coordinates_of(devices: Sequence[jax.Device]) -> list[tuple[int, ...]]:
    """Return the coordinates of devices.

    For a TPU in the torus, then the slice if there are several. For a GPU in the host, then the
    host. For other devices the index.
    """
    if _are_gpus(devices):
        seen: Counter[int] = Counter()
        coordinates: list[tuple[int, ...]] = []
        for device in devices:
            coordinates.append((seen[device.process_index], device.process_index))
            seen[device.process_index] += 1
        return coordinates
    coordinates = [tuple(getattr(device, "coords", (index,))) for index, device in enumerate(devices)]
    if _slices(devices) == 1:
        return coordinates
    return [(*coordinate, device.slice_index) for coordinate, device in zip(coordinates, devices, strict=True)]


def _slices(devices: Sequence[jax.Device]) -> int:
    return len({getattr(device, "slice_index", 0) for device in devices})


def _are_gpus(devices: Sequence[jax.Device]) -> bool:
    return devices[0].platform == "gpu"


def bytes_along_axes(collectives: Sequence[Collective], coordinates: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
    """Return the bytes sent along each axis.

    A collective is spread evenly over the axes along which its members differ. With several slices
    the last axis is the network.
    """
    along = [0.0] * len(coordinates[0])
    for collective in collectives:
        if collective.is_between_slices:
            along[-1] += collective.wire_bytes
            continue
        by_axis = zip(*(coordinates[member] for member in collective.members), strict=True)
        axes = [axis for axis, values in enumerate(by_axis) if len(set(values)) > 1]
        for axis in axes:
            along[axis] += collective.wire_bytes / len(axes)
    return tuple(along)


def bytes_within_and_between(collectives: Sequence[Collective], hosts: Sequence[int]) -> tuple[float, float]:
    """Return the bytes that a GPU sends within its host and to others, from ``hosts`` of devices.

    A group within a host uses only NVLink. A group over several hosts runs a ring through the
    network adapters of its members, with equal parts of the data: with k members per host a member
    sends one part in k over the network. An all-to-all sends everything for other hosts over it.
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
