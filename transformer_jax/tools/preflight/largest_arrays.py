"""The largest arrays that a compiled program keeps on a device."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from transformer_jax.tools.preflight.hlo_text import (
    ENTRY,
    LOOPS_AND_BRANCHES,
    arrays_of,
    calls_of,
    computations_of,
    instruction_of,
)

_SCOPES = re.compile(r'op_name="([^"]*)"')
# They hand on an array that another instruction made, in its place or as a copy closer to the cores.
_HANDED_ON = re.compile(
    r"(get-tuple-element|tuple|bitcast|while|conditional|parameter|opt-barrier|copy-done|.*-start|.*-update)$"
)
NAMED_SCOPES = 4


class Buffer(NamedTuple):
    """An array on one device: where the program makes it, ``f32[48,256,512]``, and its bytes."""

    name: str
    shape: str
    bytes: int


def largest_arrays(program: str, count: int = 3) -> list[Buffer]:
    """Of a compiled program, from its text; of arrays of one shape and type the first within a scope stands for all.

    Arguments are one kind, what the program makes from them the other: a gradient is named beside its parameter.
    """
    found: dict[tuple[bool, str], Buffer] = {}
    for is_argument, shapes, line in _made(computations_of(program)):
        name = readable_name(line)
        for array in arrays_of(shapes):
            known = found.get((is_argument, array.text))
            if not known or ("/" in name and "/" not in known.name):
                found[is_argument, array.text] = Buffer(name, array.text, array.bytes)
    return sorted(found.values(), key=lambda buffer: -buffer.bytes)[:count]


def _made(computations: dict[str, list[str]], name: str = ENTRY) -> Iterator[tuple[bool, str, str]]:
    """Instructions that fill memory, in a computation and the loops and branches that it runs, with what they return."""
    for line in computations.get(name, []):
        instruction = instruction_of(line)
        if not instruction:
            continue
        is_argument = name == ENTRY and instruction.opcode == "parameter"
        if is_argument or not _HANDED_ON.match(instruction.opcode):
            yield is_argument, instruction.result, line
        for role, callee in calls_of(line):
            if role in LOOPS_AND_BRANCHES:
                yield from _made(computations, callee)


def readable_name(line: str) -> str:
    """Origin of an instruction: the argument, or the innermost scopes of the model, and the pass."""
    scopes = _SCOPES.search(line)
    if not scopes:
        return "without a name"
    name = scopes[1].replace("\\'", "'")
    innermost = "/".join(name.split("/")[-NAMED_SCOPES:])
    return f"{innermost} (backward pass)" if "transpose(" in name and "transpose(" not in innermost else innermost
