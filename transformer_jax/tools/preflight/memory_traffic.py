"""Bytes that a program moves between a device's memory and its cores, by part of the model."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from transformer_jax.tools.preflight.hlo_text import (
    ASYNCHRONOUS,
    ENTRY,
    LOOPS_AND_BRANCHES,
    Computation,
    Instruction,
    bytes_of,
    computations_of,
    times_of,
)

OTHER = "other"
# The first pattern that matches the name of an instruction (scopes, then primitive) is its kind. A
# fusion has the name of its last operation.
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
# Distance, in instructions such as copies, to the one that gives its name to one without.
HOPS = 4

_NAME = re.compile(r'op_name="([^"]*)"')
_ARRAY = re.compile(r"\b[a-z]+\d*\[[\d,]*\](?:\{[^}]*\})?")
_ON_CHIP = re.compile(r"S\([1-9]\d*\)")
# Instructions that move nothing: existing arrays, calls, ends of asynchronous operations.
_FREE = re.compile(
    r"(parameter|constant|tuple|get-tuple-element|bitcast|while|conditional|call|opt-barrier|after-all|.*-done|.*-update)$"
)
_FREE_CALLS = re.compile(r'custom_call_target="(AllocateBuffer|ConcatBitcast|AssumeGatherIndicesInBound)"')
# Views inside a fusion, which writes none of its inner results.
_VIEWS = ("bitcast", "copy", "reshape", "transpose")
_SLICES = ("slice", "dynamic-slice", "gather")
# Index of the operand that is written into the first.
_WRITTEN_IN_PLACE = {"dynamic-update-slice": 1, "scatter": 2}
_RESULT_NAMES_OPERANDS = ("copy-start", "all-gather-start", "collective-permute-start")


def kind_of(name: str) -> str:
    """Return the kind of traffic of an instruction, ``other`` if no pattern matches its name."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), OTHER)


def traffic_by_kind(program: str) -> dict[str, int]:
    """Return the bytes that a compiled program reads and writes, by kind, in descending order.

    Nothing moves inside a fusion. Of an array that is only sliced the slices count, and of an array
    that is updated in place the update. Arrays on the chip (a memory space other than 0) and
    padding do not count. A loop of unknown length, and every branch, counts once. An instruction
    without a name, such as a copy that the compiler adds, has the kind of its user or operand.
    """
    parsed = computations_of(program)
    times = times_of(parsed)
    by_name: dict[str, Instruction] = {}
    first_users: dict[str, Instruction] = {}
    for instructions in parsed.values():
        by_name |= instructions
        for instruction in instructions.values():
            for operand in instruction.operands:
                first_users.setdefault(operand, instruction)

    def name_of(instruction: Instruction) -> str:
        """Return the name of the instruction, or of the last operation with a name inside it."""
        inside = [inner for _, callee in instruction.calls for inner in parsed.get(callee, {}).values()]
        names = [match[1] for inner in (*inside, instruction) if (match := _NAME.search(inner.line))]
        return names[-1] if names else ""

    def nearest_name(instruction: Instruction, follow: Callable[[Instruction], Instruction | None]) -> str:
        nearby: Instruction | None = instruction
        for _ in range(HOPS):
            if nearby and (name := name_of(nearby)):
                return name
            nearby = follow(nearby) if nearby else None
        return ""

    traffic: dict[str, int] = defaultdict(int)
    computations: dict[str, _Traffic] = {}
    computations |= {name: _Traffic(instructions, computations) for name, instructions in parsed.items()}
    for computation in set(_run(parsed, ENTRY)):
        for instruction, moved in computations[computation].moved():
            name = nearest_name(instruction, lambda one: first_users.get(one.name))
            name = name or nearest_name(instruction, lambda one: by_name.get(one.operands[0]) if one.operands else None)
            traffic[kind_of(name)] += times[computation] * moved
    return dict(sorted(traffic.items(), key=lambda item: -item[1]))


def _run(computations: dict[str, Computation], name: str) -> Iterator[str]:
    """Yield the names of a computation and of its loops, branches and calls, not of its fusions."""
    if name not in computations:
        return
    yield name
    for instruction in computations[name].values():
        for role, callee in instruction.calls:
            if role in LOOPS_AND_BRANCHES or (role == "to_apply" and instruction.opcode == "call"):
                yield from _run(computations, callee)


class _Traffic:
    """Bytes that the instructions of a computation read and write, with ``others`` by name."""

    def __init__(self, instructions: Computation, others: dict[str, "_Traffic"]) -> None:
        listed = list(instructions.values())
        self.instructions, self.others = instructions, others
        parameters = [instruction for instruction in listed if instruction.opcode == "parameter"]
        self.parameters = sorted(parameters, key=lambda one: int(re.findall(r"parameter\((\d+)", one.line)[0]))
        self.root = next((instruction for instruction in listed if instruction.line.lstrip().startswith("ROOT")), None)
        self.users: dict[str, list[tuple[Instruction, int]]] = defaultdict(list)
        for instruction in listed:
            for index, operand in enumerate(instruction.operands):
                self.users[operand].append((instruction, index))

    def moved(self) -> Iterator[tuple[Instruction, int]]:
        """Yield the bytes that one run of each instruction moves."""
        for instruction in self.instructions.values():
            if not _FREE.match(instruction.opcode) and not _FREE_CALLS.search(instruction.line):
                yield (
                    instruction,
                    sum(self._read(instruction, index) for index in range(len(instruction.operands)))
                    + self._written(instruction),
                )

    def _read(self, user: Instruction, index: int) -> int:
        """Return the bytes read of the operand at this index."""
        operand = self.instructions.get(user.operands[index])
        return min(_bytes(operand.result), self._taken(operand, user, index)) if operand else 0

    def _taken(self, value: Instruction, user: Instruction, index: int) -> int:
        """Return the bytes of a value that one user needs, in any memory."""
        if fused := self._fused(user):
            return fused.taken_inside(fused.parameters[index])
        if user.opcode in _RESULT_NAMES_OPERANDS:
            return 0
        if index == 0 and user.opcode in _SLICES:
            return bytes_of(user.result)
        if index == 0 and user.opcode in _WRITTEN_IN_PLACE:
            # A scatter that adds reads its target first.
            return bytes_of(self._update(user)) if user.opcode == "scatter" else 0
        return bytes_of(value.result)

    def taken_inside(self, value: Instruction) -> int:
        """Return the bytes of a value that this fusion needs, all if it returns the value."""
        if value is self.root:
            return bytes_of(value.result)
        return sum(
            self.taken_inside(user) if self._is_view(user) else self._taken(value, user, index)
            for user, index in self.users[value.name]
        )

    def _written(self, instruction: Instruction) -> int:
        """Return the bytes that an instruction writes, for a fusion its results."""
        fused = self._fused(instruction)
        if not fused or not fused.root:
            in_place = instruction.opcode in _WRITTEN_IN_PLACE
            written = bytes_of(self._update(instruction) if in_place else instruction.result)
            return min(_bytes(instruction.result), written)
        if instruction.opcode in ASYNCHRONOUS:
            return min(_bytes(fused.root.result), fused.written_inside(fused.root))
        results = _ARRAY.findall(instruction.result)
        values = fused.root.operands if fused.root.opcode == "tuple" else (fused.root.name,)
        if len(results) != len(values):
            return _bytes(instruction.result)
        return sum(
            min(_bytes(result), fused.written_inside(fused.instructions[value]))
            for result, value in zip(results, values, strict=True)
        )

    def written_inside(self, value: Instruction) -> int:
        """Return the bytes of a result of this fusion, or of an update in place."""
        value = self._seen_through(value)
        if value.opcode in _WRITTEN_IN_PLACE:
            target = self._seen_through(self.instructions[value.operands[0]])
            if target.opcode == "parameter":
                return bytes_of(self._update(value))
        return bytes_of(value.result)

    def _update(self, instruction: Instruction) -> str:
        """Return the type of the operand that is written into the first one."""
        return self.instructions[instruction.operands[_WRITTEN_IN_PLACE[instruction.opcode]]].result

    def _seen_through(self, value: Instruction) -> Instruction:
        while self._is_view(value):
            value = self.instructions[value.operands[0]]
        return value

    def _is_view(self, instruction: Instruction) -> bool:
        """Return whether an instruction inside a fusion is only a view of its operand."""
        if instruction.opcode in _VIEWS or "AssumeGatherIndicesInBound" in instruction.line:
            return True
        fused = self._fused(instruction)
        if not fused or len(instruction.operands) != 1:
            return False
        return all(inner.opcode == "parameter" or fused._is_view(inner) for inner in fused.instructions.values())

    def _fused(self, instruction: Instruction) -> "_Traffic | None":
        return self.others[instruction.fused] if instruction.fused else None


def _bytes(shapes: str) -> int:
    """Return the bytes of the arrays in the device's main memory."""
    return sum(bytes_of(array) for array in _ARRAY.findall(shapes) if not _ON_CHIP.search(array))
