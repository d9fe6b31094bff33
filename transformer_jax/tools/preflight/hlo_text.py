"""Parser for the text of a compiled program: computations, runs, instructions, arrays."""

import math
import re
from typing import NamedTuple

# Types that do not have four bytes.
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "f64": 8, "s64": 8, "u64": 8}
ENTRY = "ENTRY"
# Operations that run a computation beside others. Their results include their operands.
ASYNCHRONOUS = "async-start", "fusion-start"
# Attributes with computations of loops and branches, except loop conditions, which move little.
LOOPS_AND_BRANCHES = ("body", "true_computation", "false_computation", "branch_computations")

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{\s*$")
_ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"(body|condition|calls|to_apply|true_computation|false_computation|branch_computations)="
    r"(?:\{([^}]*)\}|%?([\w.\-]+))"
)
_TRIPS = re.compile(r'known_trip_count":\s*\{"n":\s*"(\d+)"')
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z0-9\-]*)\((.*)$")


class WrittenArray(NamedTuple):
    """An array such as ``f32[48,256,512]``, and its bytes without padding."""

    text: str
    bytes: int


def arrays_of(shapes: str) -> list[WrittenArray]:
    """Return the arrays of a type or tuple: ``(f32[2,3]{1,0:T(8,128)}, s32[])`` has two."""
    return [
        WrittenArray(match[0], BYTES.get(match[1], 4) * math.prod(int(size) for size in match[2].split(",") if size))
        for match in _ARRAY.finditer(shapes)
    ]


def bytes_of(shapes: str) -> int:
    """Return the bytes of all arrays of a type or tuple."""
    return sum(array.bytes for array in arrays_of(shapes))


class Instruction(NamedTuple):
    """An instruction such as ``%sum.1 = f32[8]{0} add(%a, %b), ...``, and its line."""

    name: str
    result: str
    opcode: str
    operands: tuple[str, ...]
    line: str

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Computations with roles: ``[("body", "body.1"), ("condition", "cond.1")]``."""
        return [
            (role, callee)
            for role, listed, single in _CALLED.findall(self.line)
            for callee in re.findall(r"[\w.\-]+", listed or single)
        ]

    @property
    def fused(self) -> str | None:
        """The computation of a fusion or of an asynchronous operation, None for others."""
        if self.opcode not in ("fusion", *ASYNCHRONOUS):
            return None
        return next((callee for role, callee in self.calls if role == "calls"), None)


Computation = dict[str, Instruction]
"""Instructions by name, in the order of the program."""


def _instruction_of(line: str) -> Instruction | None:
    match = _INSTRUCTION.match(line)
    if not match:
        return None
    name, result, opcode, rest = match.groups()
    depth, end = 1, len(rest)
    for index, letter in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            end = index
            break
    return Instruction(name, result, opcode, tuple(re.findall(r"%([\w.\-]+)", rest[:end])), line)


def computations_of(program: str) -> dict[str, Computation]:
    """Return the computations by name. The entry computation is ``ENTRY``."""
    computations: dict[str, Computation] = {}
    current: Computation = {}
    for line in program.splitlines():
        header = None if line.startswith((" ", "HloModule")) else _COMPUTATION.match(line)
        if header:
            current = computations[ENTRY if line.startswith(ENTRY) else header[1]] = {}
        elif instruction := _instruction_of(line):
            current[instruction.name] = instruction
    return computations


def times_of(computations: dict[str, Computation]) -> dict[str, int]:
    """Return how often each computation runs per run of the entry.

    A loop of unknown length counts once.
    """
    calls: dict[str, list[tuple[str, int]]] = {name: [] for name in computations}
    for caller, instructions in computations.items():
        for instruction in instructions.values():
            for role, callee in instruction.calls:
                if callee in calls:
                    calls[callee].append(
                        (caller, _trips(instruction, computations) if role in ("body", "condition") else 1)
                    )
    times: dict[str, int] = {ENTRY: 1}

    def count(name: str) -> int:
        if name not in times:
            times[name] = sum(trips * count(caller) for caller, trips in calls[name])
        return times[name]

    return {name: count(name) for name in computations}


def _trips(loop: Instruction, computations: dict[str, Computation]) -> int:
    """Return the trip count: annotated, or the constant that the condition compares with."""
    if trips := _TRIPS.search(loop.line):
        return int(trips[1])
    condition = computations.get(dict(loop.calls).get("condition", ""), {})
    limits = [re.search(r"= s32\[\]\S* constant\((\d+)\)", instruction.line) for instruction in condition.values()]
    numbers = [int(limit[1]) for limit in limits if limit]
    return numbers[0] if len(numbers) == 1 else 1
