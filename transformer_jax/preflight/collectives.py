"""What devices send each other: the collective operations of a compiled program, with their bytes and how often they run."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "f64": 8, "s64": 8, "u64": 8}
"""Of the types that have not four."""
SCATTERED = "all-reduce-scatter"
"""How the compiler for TPUs calls a reduce-scatter: as a computation that sums everything and keeps a slice."""

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{\s*$")
_OPERATION = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(-start)?\(")
_ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"(body|condition|calls|to_apply|true_computation|false_computation|branch_computations)="
    r"(?:\{([^}]*)\}|%?([\w.\-]+))"
)
_CHANNEL = re.compile(r"channel_id=(\d+)")
_TRIPS = re.compile(r'known_trip_count":\s*\{"n":\s*"(\d+)"')
_LISTED_GROUPS = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_IOTA_GROUPS = re.compile(r"replica_groups=\[(\d+),(\d+)\]")
_MESH_GROUPS = re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}")


class Collective(NamedTuple):
    """One operation of the program: ``bytes`` of its result on a device, ``group`` devices take part, it runs ``times``."""

    kind: str
    bytes: int
    group: int
    times: int

    @property
    def wire_bytes(self) -> float:
        """Bytes that a device sends in all its runs, in a ring (Patarasuk and Yuan 2009)."""
        others = (self.group - 1) / self.group
        factors = {"all-reduce": 2 * others, "reduce-scatter": others * self.group, "collective-permute": 1.0}
        return self.times * self.bytes * factors.get(self.kind, others)


def collectives_of(program: str, num_devices: int) -> list[Collective]:
    """All of a compiled program, from its text. A loop that does not say how often it runs counts once."""
    computations = dict(_computations(program))
    times = _times(computations)
    found: dict[object, Collective] = {}
    for name, lines in computations.items():
        for number, line in enumerate(lines):
            match = _OPERATION.search(line)
            if not match or not times[name]:
                continue
            size = _result_bytes(match[1], is_start=bool(match[3]), kind=match[2])
            group = _group_size(line, num_devices)
            kind = match[2]
            if kind == "all-reduce" and name.startswith(SCATTERED):
                kind, size = "reduce-scatter", size // group
            # What is started, overlapped with computation and finished is written down in all three places.
            channel = _CHANNEL.search(line)
            if group > 1:
                found.setdefault(channel[1] if channel else (name, number), Collective(kind, size, group, times[name]))
    return list(found.values())


def _computations(program: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of each computation, by its name; the entry's is ``ENTRY``."""
    name: str = ""
    lines: list[str] = []
    for line in program.splitlines():
        header = None if line.startswith((" ", "HloModule")) else _COMPUTATION.match(line)
        if header:
            name, lines = "ENTRY" if line.startswith("ENTRY") else header[1], []
        elif line.startswith("}"):
            yield name, lines
        else:
            lines.append(line)


def _times(computations: dict[str, list[str]]) -> dict[str, int]:
    """How often each computation runs when the entry runs once."""
    calls: dict[str, list[tuple[str, int]]] = {name: [] for name in computations}
    for caller, lines in computations.items():
        for line in lines:
            for what, listed, single in _CALLED.findall(line):
                trips = _trips(line, computations) if what in ("body", "condition") else 1
                for callee in re.findall(r"[\w.\-]+", listed or single):
                    if callee in calls:
                        calls[callee].append((caller, trips))
    times: dict[str, int] = {"ENTRY": 1}

    def count(name: str) -> int:
        if name not in times:
            times[name] = sum(trips * count(caller) for caller, trips in calls[name])
        return times[name]

    return {name: count(name) for name in computations}


def _trips(loop: str, computations: dict[str, list[str]]) -> int:
    """How often a loop runs: what it says, or what its condition compares its counter with."""
    known = _TRIPS.search(loop)
    if known:
        return int(known[1])
    condition = re.search(r"condition=%?([\w.\-]+)", loop)
    lines = computations.get(condition[1], []) if condition else []
    limits = [int(number) for line in lines for number in re.findall(r"= s32\[\]\S* constant\((\d+)\)", line)]
    return limits[0] if len(limits) == 1 else 1


def _result_bytes(shapes: str, *, is_start: bool, kind: str) -> int:
    """Of a plain operation all results; of an asynchronous one the second half, since it also returns its operands."""
    sizes = [
        BYTES.get(kind_, 4) * math.prod(int(size) for size in dimensions.split(",") if size)
        for kind_, dimensions in _ARRAY.findall(shapes)
    ]
    if not is_start or kind == "all-reduce":
        return sum(sizes)
    sizes = [size for size in sizes if size > 4]
    return sum(sizes[len(sizes) // 2 :])


def _group_size(line: str, num_devices: int) -> int:
    """How many devices take part, in each way that it is written."""
    if "collective-permute" in line:
        return 2
    listed = _LISTED_GROUPS.search(line)
    if listed:
        return len(listed[1].split(",")) if listed[1] else num_devices
    iota = _IOTA_GROUPS.search(line)
    if iota:
        return int(iota[2])
    mesh = _MESH_GROUPS.search(line)
    if mesh:
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
        return math.prod(sizes[name] for name in re.findall(r"'(\w+)'", mesh[2]))
    return num_devices
