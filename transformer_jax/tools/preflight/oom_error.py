"""The out-of-memory message of the compiler for TPUs."""

import re
from typing import NamedTuple

from transformer_jax.tools.preflight.hlo_text import arrays_of
from transformer_jax.tools.preflight.largest_arrays import Buffer, readable_name

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# "the total memory required for HLO temporaries (53.42G) exceeds available HBM (15.75G)"
_TEMPORARIES = re.compile(r"\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)")
# "Used 23.81G of 15.48G hbm": by the program and its arguments.
_ALL = re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm")
_LISTED = re.compile(r"^ *\d+\. Size: ([\d.]+)([KMGT]?)", re.MULTILINE)
_SHAPE = re.compile(r"^ *Shape: (.*)$", re.MULTILINE)


class OomError(NamedTuple):
    """Bytes that the program would need beside its state, bytes that there are, and the largest arrays where they are named."""

    temporaries: int
    available: float
    largest: list[Buffer]


def oom_error_of(message: str, state_bytes: int) -> OomError | None:
    """Reads the message of an error; None when it is about something else than memory."""
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
    """The allocations that the message lists, largest first, with what layouts add; of one shape the first."""
    pieces = _LISTED.split(message)
    found: dict[str, Buffer] = {}
    for size, unit, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        shape = _SHAPE.search(text)
        if shape:
            shapes = ", ".join(array.text for array in arrays_of(shape[1]))
            found.setdefault(shapes, Buffer(readable_name(text), shapes, int(_bytes(size, unit))))
    return list(found.values())
