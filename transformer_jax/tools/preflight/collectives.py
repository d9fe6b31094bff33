"""Communication between devices: the collective operations of a compiled program, with their bytes and number of executions."""

import re
from typing import NamedTuple

from transformer_jax.tools.preflight.hlo_text import arrays_of, calls_of, computations_of, times_of
from transformer_jax.tools.preflight.replica_groups import members_of

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
SCATTERED = "all-reduce-scatter"
"""Name that the compiler for TPUs gives a reduce-scatter: a computation that sums everything and keeps a slice."""

_OPERATION = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(-start)?\(")
# What each chip of a slice of TPUs exchanges with its like in the others, through the hosts.
_BETWEEN_SLICES = re.compile(
    r'= \((.*?), u32.* send\(.*_xla_megascale_target="\{([\d,]+)\}.*_xla_megascale_transfer_type="(\w+)"'
)
_CHANNEL = re.compile(r"channel_id=(\d+)")


class Collective(NamedTuple):
    """One operation of the program: ``bytes`` of its result on a device, it runs ``times``.

    ``members`` are the devices of one of its groups, by their places in the mesh, flattened; or slices of TPUs.
    """

    kind: str
    bytes: int
    members: tuple[int, ...]
    times: int
    is_between_slices: bool = False

    @property
    def group(self) -> int:
        """Number of devices that take part."""
        return len(self.members)

    @property
    def wire_bytes(self) -> float:
        """Bytes that a device sends in all its runs, in a ring (Patarasuk and Yuan 2009)."""
        others = (self.group - 1) / self.group
        factors = {"all-reduce": 2 * others, "reduce-scatter": others * self.group, "collective-permute": 1.0}
        return self.times * self.bytes * factors.get(self.kind, others)


def collectives_of(program: str, num_devices: int) -> list[Collective]:
    """All of a compiled program, from its text. A loop that does not say how often it runs counts once."""
    computations = computations_of(program)
    times = times_of(computations)
    fused = {
        callee
        for lines in computations.values()
        for line in lines
        for role, callee in calls_of(line)
        if role == "calls"
    }
    found: dict[object, Collective] = {}
    for name, lines in computations.items():
        for number, line in enumerate(lines):
            between = _BETWEEN_SLICES.search(line)
            if between and times[name]:
                kind, members = between[3].lower().replace("_", "-"), tuple(map(int, between[2].split(",")))
                sent = sum(array.bytes for array in arrays_of(between[1]))
                # What is sent is the operand, of which a result may be a part, or which may be a part of it.
                parts = {"reduce-scatter": 1 / len(members), "all-gather": len(members)}
                size = int(sent * parts.get(kind, 1))
                found[name, number] = Collective(kind, size, members, times[name], is_between_slices=True)
            match = _OPERATION.search(line)
            if not match or not times[name]:
                continue
            kind = match[2]
            size = _result_bytes(match[1], is_start=bool(match[3]), kind=kind)
            members = members_of(line, num_devices)
            if kind == "all-reduce" and name.startswith(SCATTERED):
                kind, size = "reduce-scatter", size // len(members)
            # What is started, overlapped with computation and finished in fusions is written down in all three; elsewhere
            # different operations may have the same channel.
            channel = _CHANNEL.search(line) if name in fused else None
            if len(members) > 1:
                key = channel[1] if channel else (name, number)
                found.setdefault(key, Collective(kind, size, members, times[name]))
    return list(found.values())


def _result_bytes(shapes: str, *, is_start: bool, kind: str) -> int:
    """Of a plain operation all results; of an asynchronous one the second half, since it also returns its operands."""
    sizes = [array.bytes for array in arrays_of(shapes)]
    if not is_start or kind == "all-reduce":
        return sum(sizes)
    sizes = [size for size in sizes if size > 4]
    return sum(sizes[len(sizes) // 2 :])
