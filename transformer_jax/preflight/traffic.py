"""Bytes that a compiled program moves between a device's memory and its cores."""

import re
from collections import defaultdict
from collections.abc import Iterator

from transformer_jax.preflight.program_text import (
    ENTRY,
    LOOPS_AND_BRANCHES,
    Instruction,
    arrays_of,
    calls_of,
    computations_of,
    instruction_of,
    times_of,
)

_ON_CHIP = re.compile(r"[a-z]+\d*\[[\d,]*\]\{[^}]*S\([1-9]\d*\)[^}]*\}")
# They move nothing themselves: what is there already, what only runs others, and the ends of what was counted at its start.
_FREE = re.compile(
    r"(parameter|constant|tuple|get-tuple-element|bitcast|while|conditional|call|opt-barrier|after-all|.*-done|.*-update)$"
)
_SLICES = ("slice", "dynamic-slice", "gather")
_WRITTEN_IN_PLACE = {"dynamic-update-slice": 1, "scatter": 2}
"""Which operand of theirs is written into the first."""
_RESULT_NAMES_OPERANDS = ("copy-start", "all-gather-start", "collective-permute-start")


def memory_traffic(program: str) -> int:
    """Operands and results of all instructions of a compiled program, from its text, each as often as it runs.

    What a fusion computes inside moves nothing. Of an array from which only slices are taken the slices count, and of one into
    which a slice is written that slice; arrays that stay on the chip (a memory space other than 0) do not count. A loop that
    does not say how often it runs counts once.
    """
    lines = computations_of(program)
    times = times_of(lines)
    computations = {name: _Computation(each) for name, each in lines.items()}
    traffic = _Traffic(computations)
    return sum(times[name] * traffic.moved(computations[name]) for name in set(_run(computations, ENTRY)))


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
    """What runs as instructions of its own: a computation and its loops, branches and calls, not what they fuse."""
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

    def moved(self, computation: _Computation) -> int:
        """By one run of its instructions."""
        moving = [each for each in computation.instructions.values() if not _FREE.match(each.opcode)]
        read = sum(self._read(each, place, computation) for each in moving for place in range(len(each.operands)))
        return read + sum(self._written(each, computation) for each in moving)

    def _read(self, user: Instruction, place: int, computation: _Computation) -> int:
        """Of the operand at this place."""
        operand = computation.instructions.get(user.operands[place])
        whole = _bytes(operand.result) if operand else 0
        if place == 0 and user.opcode in _SLICES:
            # A slice of what is in memory may itself be on the chip.
            return min(whole, sum(array.bytes for array in arrays_of(user.result)))
        if user.opcode in _RESULT_NAMES_OPERANDS or (place == 0 and user.opcode in _WRITTEN_IN_PLACE):
            return 0
        fused = self._fused(user)
        return min(whole, self._read_inside(fused.parameters[place], fused)) if fused else whole

    def _read_inside(self, value: Instruction, fused: _Computation) -> int:
        """Of what a fusion is given, or of a view of it."""
        return sum(
            self._read_inside(user, fused) if user.opcode == "bitcast" else self._read(user, place, fused)
            for user, place in fused.users[value.name]
        )

    def _written(self, instruction: Instruction, computation: _Computation) -> int:
        fused = self._fused(instruction)
        if fused and fused.root:
            return min(_bytes(instruction.result), self._written(fused.root, fused))
        sources = [found for name in instruction.operands if (found := computation.instructions.get(name))]
        if instruction.opcode in _WRITTEN_IN_PLACE:
            return _bytes(sources[_WRITTEN_IN_PLACE[instruction.opcode]].result)
        if instruction.opcode in ("bitcast", "tuple"):
            return sum(self._written(source, computation) for source in sources)
        return _bytes(instruction.result)

    def _fused(self, instruction: Instruction) -> _Computation | None:
        """What a fusion computes, or an asynchronous operation."""
        if instruction.opcode not in ("fusion", "async-start"):
            return None
        return next((self.computations[callee] for role, callee in calls_of(instruction.line) if role == "calls"), None)


def _bytes(shapes: str) -> int:
    """In the device's memory."""
    return sum(array.bytes for array in arrays_of(_ON_CHIP.sub("", shapes)))
