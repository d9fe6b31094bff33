"""Bytes that a compiled program moves between a device's memory and its cores, by part of the model."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

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

OTHER = "other"
# The first pattern that matches the name of an instruction (scopes, then primitive) decides. A fusion has the name of its last
# operation.
KINDS: tuple[tuple[str, str], ...] = (
    ("scores of pairs", r"row_loss"),
    ("embeddings", r"embed/|sum_dropout"),
    ("norms, residuals, dropout", r"/norm/|_dropout/|_residual\.[a-z]+/[a-z_]+$"),
    ("products of layers", r"(project_heads|project_output|feed_forward)/.*dot_general"),
    ("casts, biases, activations", r"project_heads|project_output|feed_forward/"),
    ("attention", r"attention"),
    ("logits and loss", r"jvp\(\)|jvp\(jit|logits"),
    ("norms, residuals, dropout", r"jvp\("),
    ("rows of the tables", r"^jit\(train_step\)/while/body/.*(gather|scatter)"),
    ("optimizer", r"^jit\(train_step\)/|^state\."),
    ("search", r"^jit\((start|step|<lambda>)\)/"),
)
HOPS = 4
"""Largest distance, in instructions such as copies, to the instruction that gives its name to one without."""

_NAME = re.compile(r'op_name="([^"]*)"')
_ARRAY = re.compile(r"\b[a-z]+\d*\[[\d,]*\](?:\{[^}]*\})?")
_ON_CHIP = re.compile(r"S\([1-9]\d*\)")
# They move nothing themselves: existing arrays, calls of other computations, ends of asynchronous operations.
_FREE = re.compile(
    r"(parameter|constant|tuple|get-tuple-element|bitcast|while|conditional|call|opt-barrier|after-all|.*-done|.*-update)$"
)
_FREE_CALLS = re.compile(r'custom_call_target="(AllocateBuffer|ConcatBitcast|AssumeGatherIndicesInBound)"')
_VIEWS = ("bitcast", "copy", "reshape", "transpose")
"""Views inside a fusion, which writes none of its inner results."""
_SLICES = ("slice", "dynamic-slice", "gather")
_WRITTEN_IN_PLACE = {"dynamic-update-slice": 1, "scatter": 2}
"""Index of the operand that is written into the first."""
_RESULT_NAMES_OPERANDS = ("copy-start", "all-gather-start", "collective-permute-start")


def kind_of(name: str) -> str:
    """The kind of traffic of an instruction with this name; ``other`` if no pattern matches."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), OTHER)


def traffic_by_kind(program: str) -> dict[str, int]:
    """Bytes that instructions of each kind in the text of a compiled program read and write in all runs, in descending order.

    Nothing moves inside a fusion. If an array is only sliced, the slices count; if it is updated in place, the update counts.
    Arrays on the chip (a memory space other than 0) and padding do not count. A loop of unknown trip count, and every branch,
    counts once. An instruction without a name, such as a copy that the compiler adds, has the kind of its user or operand.
    """
    computations = computations_of(program)
    made: dict[str, Instruction] = {}
    first_users: dict[str, Instruction] = {}
    for lines in computations.values():
        for each in filter(None, map(instruction_of, lines)):
            made[each.name] = each
            for operand in each.operands:
                first_users.setdefault(operand, each)

    def own_name(instruction: Instruction) -> str:
        """The name of the instruction, or of the last operation with a name inside it."""
        inside = [line for _, callee in calls_of(instruction.line) for line in computations.get(callee, [])]
        names = [match[1] for line in (*inside, instruction.line) if (match := _NAME.search(line))]
        return names[-1] if names else ""

    def nearest_name(instruction: Instruction, follow: Callable[[Instruction], Instruction | None]) -> str:
        each: Instruction | None = instruction
        for _ in range(HOPS):
            if each and (name := own_name(each)):
                return name
            each = follow(each) if each else None
        return ""

    found: dict[str, int] = defaultdict(int)
    for instruction, moved in _moves_of(program):
        name = nearest_name(instruction, lambda each: first_users.get(each.name))
        name = name or nearest_name(instruction, lambda each: made.get(each.operands[0]) if each.operands else None)
        found[kind_of(name)] += moved
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _moves_of(program: str) -> Iterator[tuple[Instruction, int]]:
    """The instructions that access memory, with the bytes of all their runs."""
    lines = computations_of(program)
    times = times_of(lines)
    computations = {name: _Computation(each) for name, each in lines.items()}
    traffic = _Traffic(computations)
    for name in set(_run(computations, ENTRY)):
        yield from ((each, times[name] * moved) for each, moved in traffic.moved(computations[name]))


class _Computation:
    """A computation: instructions by name, parameters in order, and users of each with the index of the operand."""

    def __init__(self, lines: list[str]) -> None:
        found = [instruction for line in lines if (instruction := instruction_of(line))]
        self.instructions = {each.name: each for each in found}
        self.parameters = sorted((each for each in found if each.opcode == "parameter"), key=_number)
        self.root = next((each for each in found if each.line.lstrip().startswith("ROOT")), None)
        self.users: dict[str, list[tuple[Instruction, int]]] = defaultdict(list)
        for each in found:
            for index, operand in enumerate(each.operands):
                self.users[operand].append((each, index))


def _number(parameter: Instruction) -> int:
    match = re.search(r"parameter\((\d+)\)", parameter.line)
    return int(match[1]) if match else 0


def _run(computations: dict[str, _Computation], name: str) -> Iterator[str]:
    """Names of the computation and of its loops, branches and calls, but not of its fusions."""
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
        """Bytes moved by one run of each instruction of a computation."""
        for each in computation.instructions.values():
            if not _FREE.match(each.opcode) and not _FREE_CALLS.search(each.line):
                read = sum(self._read(each, index, computation) for index in range(len(each.operands)))
                yield each, read + self._written(each, computation)

    def _read(self, user: Instruction, index: int, where: _Computation) -> int:
        """Bytes read of the operand at this index."""
        operand = where.instructions.get(user.operands[index])
        return min(_bytes(operand.result), self._taken(operand, user, index, where)) if operand else 0

    def _taken(self, value: Instruction, user: Instruction, index: int, where: _Computation) -> int:
        """Bytes of a value that one user needs, in any memory."""
        fused = self._fused(user)
        if fused:
            return self._taken_inside(fused.parameters[index], fused)
        if user.opcode in _RESULT_NAMES_OPERANDS:
            return 0
        if index == 0 and user.opcode in _SLICES:
            return _size(user.result)
        if index == 0 and user.opcode in _WRITTEN_IN_PLACE:
            # A scatter that adds reads its target first.
            return _size(self._update(user, where)) if user.opcode == "scatter" else 0
        return _size(value.result)

    def _taken_inside(self, value: Instruction, fused: _Computation) -> int:
        """Bytes of a value that a fusion needs; all if the fusion returns it unchanged."""
        if value is fused.root:
            return _size(value.result)
        return sum(
            self._taken_inside(user, fused) if self._is_view(user) else self._taken(value, user, index, fused)
            for user, index in fused.users[value.name]
        )

    def _written(self, instruction: Instruction, where: _Computation) -> int:
        """Bytes that an instruction writes; for a fusion, its results."""
        fused = self._fused(instruction)
        if not fused or not fused.root:
            in_place = instruction.opcode in _WRITTEN_IN_PLACE
            written = _size(self._update(instruction, where)) if in_place else _size(instruction.result)
            return min(_bytes(instruction.result), written)
        if instruction.opcode == "async-start":
            # Its result includes its operands.
            return _bytes(fused.root.result)
        results = _ARRAY.findall(instruction.result)
        values = fused.root.operands if fused.root.opcode == "tuple" else (fused.root.name,)
        if len(results) != len(values):
            return _bytes(instruction.result)
        return sum(
            min(_bytes(result), self._written_inside(fused.instructions[value], fused))
            for result, value in zip(results, values, strict=True)
        )

    def _written_inside(self, value: Instruction, fused: _Computation) -> int:
        """Bytes of a result of a fusion; for a parameter updated in place, only the update."""
        value = self._seen_through(value, fused)
        if value.opcode in _WRITTEN_IN_PLACE:
            target = self._seen_through(fused.instructions[value.operands[0]], fused)
            if target.opcode == "parameter":
                return _size(self._update(value, fused))
        return _size(value.result)

    def _update(self, instruction: Instruction, where: _Computation) -> str:
        """The type of the operand that is written into the first operand."""
        return where.instructions[instruction.operands[_WRITTEN_IN_PLACE[instruction.opcode]]].result

    def _seen_through(self, value: Instruction, fused: _Computation) -> Instruction:
        while self._is_view(value):
            value = fused.instructions[value.operands[0]]
        return value

    def _is_view(self, instruction: Instruction) -> bool:
        """Whether the instruction, inside a fusion, is only a view of its operand."""
        if instruction.opcode in _VIEWS or "AssumeGatherIndicesInBound" in instruction.line:
            return True
        fused = self._fused(instruction)
        if not fused or len(instruction.operands) != 1:
            return False
        return all(each.opcode == "parameter" or self._is_view(each) for each in fused.instructions.values())

    def _fused(self, instruction: Instruction) -> _Computation | None:
        """The computation of a fusion or of an asynchronous operation; None for others."""
        if instruction.opcode not in ("fusion", "async-start"):
            return None
        return next((self.computations[callee] for role, callee in calls_of(instruction.line) if role == "calls"), None)


def _size(shapes: str) -> int:
    """Bytes of the arrays in any memory."""
    return sum(array.bytes for array in arrays_of(shapes))


def _bytes(shapes: str) -> int:
    """Bytes of the arrays in the device's main memory."""
    return sum(_size(array) for array in _ARRAY.findall(shapes) if not _ON_CHIP.search(array))
