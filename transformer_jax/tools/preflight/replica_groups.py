"""Replica groups: the devices that take part in a collective operation, in each of the notations of compilers."""

import math
import re

import numpy as np

_LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)")
_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? \{([^}]*)\}")
_PERMUTATION = re.compile(r"source_target_pairs=\{([\d,{}]*)\}")
_NUMBERING = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_AXIS = re.compile(r"'?([\w.]+)'?(?::\((\d+)\)(\d+))?")


def members_of(operation: str, num_devices: int) -> tuple[int, ...]:
    """The first group of devices, by their places in the mesh, flattened; all where none is written.

    Of ``{{0,1},{2,3}}``, ``[2,2]<=[4]`` and ``mesh['a'=2,'b'=2] {'b'}`` that is 0 and 1; of a permutation the first two devices
    of which one sends to the other, or one device alone.
    """
    pairs = _PERMUTATION.search(operation)
    if pairs:
        sent = [(int(source), int(target)) for source, target in re.findall(r"(\d+),(\d+)", pairs[1])]
        return next((pair for pair in sent if pair[0] != pair[1]), (0,))
    listed = _LISTED.search(operation)
    if listed and listed[1]:
        return _hyperparameters(listed[1])
    iota = _IOTA.search(operation)
    if iota:
        return tuple(_numbering(iota[3])[: int(iota[2])].tolist())
    mesh = _MESH.search(operation)
    if mesh:
        return _members_along(mesh[1], mesh[2], mesh[3])
    return tuple(range(num_devices))


def _hyperparameters(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _numbering(text: str) -> np.ndarray:
    """``[2,3]T(1,0)``, the numbers from 0 in an array of that shape, transposed and flattened: 0, 3, 1, 4, 2, 5."""
    match = _NUMBERING.match(text)
    if not match:
        return np.array(_hyperparameters(text))
    sizes = _hyperparameters(match[1])
    order = _hyperparameters(match[2]) if match[2] else tuple(range(len(sizes)))
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(order).ravel()


def _members_along(axes: str, device_ids: str | None, chosen: str) -> tuple[int, ...]:
    """Of the mesh ``'a'=2,'b'=4`` along the axes ``'a','b':(2)2``; ``:(2)2`` is the part of size 2 below one of size 2."""
    sizes = {name: int(size) for name, size in re.findall(r"'?([\w.]+)'?=(\d+)", axes)}
    strides = {name: math.prod(list(sizes.values())[place + 1 :]) for place, name in enumerate(sizes)}
    members = np.zeros(1, int)
    for name, above, part in _AXIS.findall(chosen):
        size = int(part) if part else sizes[name]
        stride = strides[name] * (sizes[name] // (int(above) * size) if part else 1)
        members = (members[:, None] + stride * np.arange(size)).ravel()
    numbers = _numbering(device_ids) if device_ids else np.arange(math.prod(sizes.values()))
    return tuple(numbers[members].tolist())
