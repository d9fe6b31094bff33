"""The largest arrays of a compiled program on a device, and the out-of-memory message of the TPU compiler."""

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
# They return an array of another instruction: the same memory, or a copy closer to the cores.
_PASSED_ON = re.compile(
    r"(get-tuple-element|tuple|bitcast|while|conditional|parameter|opt-barrier|copy-done|.*-start|.*-update)$"
)
NAMED_SCOPES = 4
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# "the total memory required for HLO temporaries (53.42G) exceeds available HBM (15.75G)"
_TEMPORARIES = re.compile(r"\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)")
# "Used 23.81G of 15.48G hbm", by the program and its arguments.
_ALL = re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm")
_LISTED = re.compile(r"^ *\d+\. Size: ([\d.]+)([KMGT]?)", re.MULTILINE)
_SHAPE = re.compile(r"^ *Shape: (.*)$", re.MULTILINE)


class Buffer(NamedTuple):
    """An array on one device: its origin in the program, its shape such as ``f32[48,256,512]``, and its bytes."""

    name: str
    shape: str
    bytes: int


class OomError(NamedTuple):
    """Bytes that the program needs besides its state, available bytes, and the largest arrays if the message lists them."""

    temporaries: int
    available: float
    largest: list[Buffer]


def largest_arrays(program: str, count: int = 3) -> list[Buffer]:
    """The largest arrays in the text of a compiled program, one for each shape and type, named by the first with a scope.

    Arguments and other arrays are listed separately, so that a gradient appears next to its parameter.
    """
    found: dict[tuple[bool, str], Buffer] = {}
    for is_argument, instruction in _made(computations_of(program)):
        name = readable_name(instruction.line)
        for array in arrays_of(instruction.result):
            known = found.get((is_argument, array.text))
            if not known or ("/" in name and "/" not in known.name):
                found[is_argument, array.text] = Buffer(name, array.text, array.bytes)
    return sorted(found.values(), key=lambda buffer: -buffer.bytes)[:count]


def _made(computations: dict[str, Computation], name: str = ENTRY) -> Iterator[tuple[bool, Instruction]]:
    """The instructions that fill memory, also in loops and branches, each with whether it is an argument."""
    for instruction in computations.get(name, {}).values():
        is_argument = name == ENTRY and instruction.opcode == "parameter"
        if is_argument or not _PASSED_ON.match(instruction.opcode):
            yield is_argument, instruction
        for role, callee in instruction.calls:
            if role in LOOPS_AND_BRANCHES:
                yield from _made(computations, callee)


def readable_name(line: str) -> str:
    """Origin of an instruction: the argument, or the innermost scopes of the model with a mark for the backward pass."""
    scopes = _SCOPES.search(line)
    if not scopes:
        return "without a name"
    name = scopes[1].replace("\\'", "'")
    innermost = "/".join(name.split("/")[-NAMED_SCOPES:])
    return f"{innermost} (backward pass)" if "transpose(" in name and "transpose(" not in innermost else innermost


def oom_error_of(message: str, state_bytes: int) -> OomError | None:
    """Parses an error message; None if it is not about memory."""
    temporaries, everything = _TEMPORARIES.search(message), _ALL.search(message)
    if temporaries:
        needed, available = _bytes(temporaries[1], temporaries[2]), _bytes(temporaries[3], temporaries[4])
    elif everything:
        needed = _bytes(everything[1], everything[2]) - state_bytes
        available = _bytes(everything[3], everything[4])
    else:
        return None
    return OomError(int(needed), available, _listed(message)[:3])


def _bytes(number: str, unit: str) -> float:
    return float(number) * UNITS[unit]


def _listed(message: str) -> list[Buffer]:
    """The allocations in the message, padding included, largest first and one for each shape."""
    pieces = _LISTED.split(message)
    found: dict[str, Buffer] = {}
    for size, unit, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        shape = _SHAPE.search(text)
        if shape:
            shapes = ", ".join(array.text for array in arrays_of(shape[1]))
            found.setdefault(shapes, Buffer(readable_name(text), shapes, int(_bytes(size, unit))))
    return list(found.values())
