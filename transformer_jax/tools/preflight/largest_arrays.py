"""The largest arrays of a compiled program, and the memory in an error of the TPU compiler."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from transformer_jax.tools.preflight.hlo_text import (
    ENTRY,
    LOOPS_AND_BRANCHES,
    Computation,
    Instruction,
    arrays_of,
    computations_of,
)

_SCOPES = re.compile(r'op_name="([^"]*)"')
# Instructions that return an array of another one: the same memory, or a copy closer to the cores.
_PASSED_ON = re.compile(
    r"(get-tuple-element|tuple|bitcast|while|conditional|parameter|opt-barrier|copy-done|.*-start|.*-update)$"
)
NAMED_SCOPES = 4
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# "the total memory required for HLO temporaries (17.91G) exceeds available HBM (15.75G)" or "Used
# 23.81G of 15.48G hbm". Both count the arguments: with libtpu 0.0.52 the first was the message for
# a program of three arguments and no temporaries.
_OUT_OF_MEMORY = re.compile(
    r"(?:temporaries \(|Used )([\d.]+)([KMGT]?)\)? (?:exceeds available HBM \(|of )([\d.]+)([KMGT]?)"
)


class Buffer(NamedTuple):
    """An array on a device: its origin, its shape such as ``f32[48,256,512]``, its bytes."""

    name: str
    shape: str
    bytes: int


def largest_arrays(program: str, count: int = 3) -> list[Buffer]:
    """Return the largest arrays of a compiled program, one for each shape and type.

    The first with a scope gives the name. Arguments are apart, so that a gradient appears next to
    its parameter.
    """
    buffers: dict[tuple[bool, str], Buffer] = {}
    for is_argument, instruction in _filled(computations_of(program)):
        name = readable_name(instruction.line)
        for array in arrays_of(instruction.result):
            buffer = buffers.get((is_argument, array.text))
            if not buffer or ("/" in name and "/" not in buffer.name):
                buffers[is_argument, array.text] = Buffer(name, array.text, array.bytes)
    return sorted(buffers.values(), key=lambda buffer: -buffer.bytes)[:count]


def _filled(computations: dict[str, Computation], name: str = ENTRY) -> Iterator[tuple[bool, Instruction]]:
    """Yield the instructions that fill memory, and whether they are arguments."""
    for instruction in computations.get(name, {}).values():
        is_argument = name == ENTRY and instruction.opcode == "parameter"
        if is_argument or not _PASSED_ON.match(instruction.opcode):
            yield is_argument, instruction
        for role, callee in instruction.calls:
            if role in LOOPS_AND_BRANCHES:
                yield from _filled(computations, callee)


def readable_name(line: str) -> str:
    """Return the origin of an instruction: the argument, or the innermost scopes of the model."""
    scopes = _SCOPES.search(line)
    if not scopes:
        return "without a name"
    name = scopes[1].replace("\\'", "'")
    innermost = "/".join(name.split("/")[-NAMED_SCOPES:])
    return f"{innermost} (backward pass)" if "transpose(" in name and "transpose(" not in innermost else innermost


def needed_and_available(message: str, argument_bytes: int) -> tuple[int, float] | None:
    """Return the bytes that a program needs besides arguments, and available bytes.

    Return None if the error is not about memory.
    """
    match = _OUT_OF_MEMORY.search(message)
    if not match:
        return None
    needed, available = float(match[1]) * UNITS[match[2]], float(match[3]) * UNITS[match[4]]
    return int(needed) - argument_bytes, available
