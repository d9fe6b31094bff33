"""Parser for the text of a compiled program: computations, how often they run, instructions and arrays."""

import math
import re
from typing import NamedTuple

BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "f64": 8, "s64": 8, "u64": 8}
"""Sizes of types that do not have four bytes."""
ENTRY = "ENTRY"
LOOPS_AND_BRANCHES = ("body", "true_computation", "false_computation", "branch_computations")
"""Attributes that name the computations of loops and branches, except loop conditions, which move little."""

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
    """The arrays of a type or tuple: ``(f32[2,3]{1,0:T(8,128)}, s32[])`` has two."""
    return [
        WrittenArray(match[0], BYTES.get(match[1], 4) * math.prod(int(size) for size in match[2].split(",") if size))
        for match in _ARRAY.finditer(shapes)
    ]


class Instruction(NamedTuple):
    """An instruction: ``%sum.1 = f32[8]{0} add(%a, %b), ...`` has sum.1, f32[8]{0}, add, (a, b), and the whole line."""

    name: str
    result: str
    opcode: str
    operands: tuple[str, ...]
    line: str


def instruction_of(line: str) -> Instruction | None:
    """The instruction on a line; None for other lines."""
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


def computations_of(program: str) -> dict[str, list[str]]:
    """The lines of each computation by name; the entry computation is named ``ENTRY``."""
    found: dict[str, list[str]] = {}
    name = ""
    lines: list[str] = []
    for line in program.splitlines():
        header = None if line.startswith((" ", "HloModule")) else _COMPUTATION.match(line)
        if header:
            name, lines = ENTRY if line.startswith(ENTRY) else header[1], []
        elif line.startswith("}"):
            found[name] = lines
        else:
            lines.append(line)
    return found


def calls_of(line: str) -> list[tuple[str, str]]:
    """Computations that an instruction runs, with their roles: ``[("body", "body.1"), ("condition", "cond.1")]``."""
    return [
        (role, callee)
        for role, listed, single in _CALLED.findall(line)
        for callee in re.findall(r"[\w.\-]+", listed or single)
    ]


def times_of(computations: dict[str, list[str]]) -> dict[str, int]:
    """Runs of each computation per run of the entry; a loop of unknown trip count counts once."""
    calls: dict[str, list[tuple[str, int]]] = {name: [] for name in computations}
    for caller, lines in computations.items():
        for line in lines:
            for role, callee in calls_of(line):
                if callee in calls:
                    calls[callee].append((caller, _trips(line, computations) if role in ("body", "condition") else 1))
    times: dict[str, int] = {ENTRY: 1}

    def count(name: str) -> int:
        if name not in times:
            times[name] = sum(trips * count(caller) for caller, trips in calls[name])
        return times[name]

    return {name: count(name) for name in computations}


def _trips(loop: str, computations: dict[str, list[str]]) -> int:
    """Trip count of a loop: annotated, or the constant that its condition compares the counter with."""
    known = _TRIPS.search(loop)
    if known:
        return int(known[1])
    condition = re.search(r"condition=%?([\w.\-]+)", loop)
    lines = computations.get(condition[1], []) if condition else []
    limits = [int(number) for line in lines for number in re.findall(r"= s32\[\]\S* constant\((\d+)\)", line)]
    return limits[0] if len(limits) == 1 else 1
