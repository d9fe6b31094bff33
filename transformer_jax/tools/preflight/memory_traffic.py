"""Bytes that a compiled program moves between a device's memory and its cores."""

import re
from collections import defaultdict
from collections.abc import Iterator

from transformer_jax.tools.preflight.hlo_text import (
    ENTRY,
    LOOPS_AND_BRANCHES,
    Instruction,
    arrays_of,
    calls_of,
    computations_of,
    instruction_of,
    times_of,
)

_ARRAY = re.compile(r"\b[a-z]+\d*\[[\d,]*\](?:\{[^}]*\})?")
_ON_CHIP = re.compile(r"S\([1-9]\d*\)")
# They move nothing themselves: what is there already, what only runs others, and the ends of what was counted at its start.
_FREE = re.compile(
    r"(parameter|constant|tuple|get-tuple-element|bitcast|while|conditional|call|opt-barrier|after-all|.*-done|.*-update)$"
)
_FREE_CALLS = re.compile(r'custom_call_target="(AllocateBuffer|ConcatBitcast|AssumeGatherIndicesInBound)"')
_VIEWS = ("bitcast", "copy", "reshape", "transpose")
"""Inside a fusion, where nothing is written down."""
_SLICES = ("slice", "dynamic-slice", "gather")
_WRITTEN_IN_PLACE = {"dynamic-update-slice": 1, "scatter": 2}
"""Index of the operand that is written into the first."""
_RESULT_NAMES_OPERANDS = ("copy-start", "all-gather-start", "collective-permute-start")


def memory_traffic(program: str) -> int:
    """Operands and results of all instructions of a compiled program, from its text, each as often as it runs.

    What a fusion computes inside moves nothing. Of an array from which only slices are taken the slices count, and of one into
    which a slice is written that slice; arrays that stay on the chip (a memory space other than 0) do not count, nor what a
    layout pads. A loop that does not say how often it runs counts once, every branch too.
    """
    return sum(moved for _, moved in moves_of(program))


def moves_of(program: str) -> Iterator[tuple[Instruction, int]]:
    """The instructions that read and write memory, with the bytes of all their runs."""
    lines = computations_of(program)
    times = times_of(lines)
    computations = {name: _Computation(each) for name, each in lines.items()}
    traffic = _Traffic(computations)
    for name in set(_run(computations, ENTRY)):
        yield from ((each, times[name] * moved) for each, moved in traffic.moved(computations[name]))


class _Computation:
    """Instructions by name, parameters in order, the users of each with the place it has among their operands."""

    def __init__(self, lines: list[str]) -> None:
        found = [instruction for line in lines if (instruction := instruction_of(line))]
        self.instructions = {each.name: each for each in found}
        self.parameters = sorted((each for each in found if each.opcode == "parameter"), key=_number)
        self.root = next((each for each in found if each.line.lstrip().startswith("ROOT")), None)
        self.users: dict[str, list[tuple[Instruction, int]]] = defaultdict(list)
        for each in found:
            for place, operand in enumerate(each.operands):
                self.users[operand].append((each, place))


def _number(parameter: Instruction) -> int:
    match = re.search(r"parameter\((\d+)\)", parameter.line)
    return int(match[1]) if match else 0


def _run(computations: dict[str, _Computation], name: str) -> Iterator[str]:
    """Instructions that run separately: those of a computation and of its loops, branches and calls, not those they fuse."""
    if name not in computations:
        return
    yield name
    for instruction in computations[name].instructions.values():
        for role, callee in calls_of(instruction.line):
            if role in LOOPS_AND_BRANCHES or (role == "to_apply" and instruction.opcode == "call"):
                yield from _run(computations, callee)


class _Traffic:
    """Bytes that the instructions of these computations read and write."""

    def __init__(self, computations: dict[str, _Computation]) -> None:
        self.computations = computations

    def moved(self, computation: _Computation) -> Iterator[tuple[Instruction, int]]:
        """By one run of each of its instructions."""
        for each in computation.instructions.values():
            if not _FREE.match(each.opcode) and not _FREE_CALLS.search(each.line):
                read = sum(self._read(each, place, computation) for place in range(len(each.operands)))
                yield each, read + self._written(each, computation)

    def _read(self, user: Instruction, place: int, where: _Computation) -> int:
        """Of the operand at this place."""
        operand = where.instructions.get(user.operands[place])
        return min(_bytes(operand.result), self._taken(operand, user, place, where)) if operand else 0

    def _taken(self, value: Instruction, user: Instruction, place: int, where: _Computation) -> int:
        """Bytes that one user needs of a value, wherever that lies."""
        fused = self._fused(user)
        if fused:
            return self._taken_inside(fused.parameters[place], fused)
        if user.opcode in _RESULT_NAMES_OPERANDS:
            return 0
        if place == 0 and user.opcode in _SLICES:
            return _size(user.result)
        if place == 0 and user.opcode in _WRITTEN_IN_PLACE:
            # What is added to an array is read there first.
            return _size(self._update(user, where)) if user.opcode == "scatter" else 0
        return _size(value.result)

    def _taken_inside(self, value: Instruction, fused: _Computation) -> int:
        """Bytes that a fusion needs of a value in it: all of it where it passes the value on unchanged."""
        if value is fused.root:
            return _size(value.result)
        return sum(
            self._taken_inside(user, fused) if self._is_view(user) else self._taken(value, user, place, fused)
            for user, place in fused.users[value.name]
        )

    def _written(self, instruction: Instruction, where: _Computation) -> int:
        """At its top level: what a fusion returns, or one of several results."""
        fused = self._fused(instruction)
        if not fused or not fused.root:
            in_place = instruction.opcode in _WRITTEN_IN_PLACE
            written = _size(self._update(instruction, where)) if in_place else _size(instruction.result)
            return min(_bytes(instruction.result), written)
        if instruction.opcode == "async-start":
            # Its result names its operands too.
            return _bytes(fused.root.result)
        places = _ARRAY.findall(instruction.result)
        values = fused.root.operands if fused.root.opcode == "tuple" else (fused.root.name,)
        if len(places) != len(values):
            return _bytes(instruction.result)
        return sum(
            min(_bytes(place), self._written_inside(fused.instructions[value], fused))
            for place, value in zip(places, values, strict=True)
        )

    def _written_inside(self, value: Instruction, fused: _Computation) -> int:
        """Of a result of a fusion: a slice, if that is all that is new in an array that the fusion was given."""
        value = self._seen_through(value, fused)
        if value.opcode in _WRITTEN_IN_PLACE:
            target = self._seen_through(fused.instructions[value.operands[0]], fused)
            if target.opcode == "parameter":
                return _size(self._update(value, fused))
        return _size(value.result)

    def _update(self, instruction: Instruction, where: _Computation) -> str:
        """The type of what is written into the first operand."""
        return where.instructions[instruction.operands[_WRITTEN_IN_PLACE[instruction.opcode]]].result

    def _seen_through(self, value: Instruction, fused: _Computation) -> Instruction:
        while self._is_view(value):
            value = fused.instructions[value.operands[0]]
        return value

    def _is_view(self, instruction: Instruction) -> bool:
        """Whether it only shows its one operand in another way, inside a fusion."""
        if instruction.opcode in _VIEWS or "AssumeGatherIndicesInBound" in instruction.line:
            return True
        fused = self._fused(instruction)
        if not fused or len(instruction.operands) != 1:
            return False
        return all(each.opcode == "parameter" or self._is_view(each) for each in fused.instructions.values())

    def _fused(self, instruction: Instruction) -> _Computation | None:
        """Computation of a fusion, or of an asynchronous operation."""
        if instruction.opcode not in ("fusion", "async-start"):
            return None
        return next((self.computations[callee] for role, callee in calls_of(instruction.line) if role == "calls"), None)


def _size(shapes: str) -> int:
    """Wherever it lies."""
    return sum(array.bytes for array in arrays_of(shapes))


def _bytes(shapes: str) -> int:
    """Of what lies in the device's memory and not on its chip."""
    return sum(_size(array) for array in _ARRAY.findall(shapes) if not _ON_CHIP.search(array))
