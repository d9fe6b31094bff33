"""A program compiled for devices that need not be here, and the findings of the compiler."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from transformer_jax.tools.preflight.chips import Chip
from transformer_jax.tools.preflight.collectives import Collective, collectives_of
from transformer_jax.tools.preflight.largest_arrays import Buffer, largest_arrays
from transformer_jax.tools.preflight.oom_error import oom_error_of
from transformer_jax.tools.preflight.traffic_kinds import traffic_by_kind


class Compiled(NamedTuple):
    """Findings of the compiler, see ``Program``."""

    temporaries: int
    available: float
    fits: bool
    largest: list[Buffer]
    traffic_kinds: dict[str, int]
    collectives: list[Collective]


def compile_for(lowered: jax.stages.Lowered, mesh: Mesh, chip: Chip | None, argument_bytes: int) -> Compiled:
    """Compiles for the devices of ``mesh``. ``fits`` is whether program and arguments do."""
    compiled, text = _compiled_and_text(lowered, mesh.devices.flat[0].platform)
    if isinstance(compiled, jax.errors.JaxRuntimeError):
        error = oom_error_of(str(compiled), argument_bytes)
        if not error:
            raise compiled
        largest = error.largest or largest_arrays(text)
        return Compiled(error.temporaries, error.available, False, largest, {}, [])
    memory: Any = compiled.memory_analysis()
    temporaries, available = memory.temp_size_in_bytes, chip.memory if chip else math.inf
    return Compiled(
        temporaries,
        available,
        argument_bytes + temporaries <= available,
        largest_arrays(text),
        traffic_by_kind(text),
        collectives_of(text, mesh.size),
    )


def _compiled_and_text(
    lowered: jax.stages.Lowered, platform: str
) -> tuple[jax.stages.Compiled | jax.errors.JaxRuntimeError, str]:
    """The program, or the error instead of it, and how the compiler writes it down.

    The TPU compiler may use operations that JAX cannot read back: it writes them to a file, most
    often also of a program that it then refuses.
    """
    if platform != "tpu":
        compiled = lowered.compile()
        return compiled, compiled.as_text() or ""
    with TemporaryDirectory() as folder:
        result: jax.stages.Compiled | jax.errors.JaxRuntimeError
        try:
            result = lowered.compile({"xla_dump_to": folder, "xla_dump_hlo_as_text": True})
        except jax.errors.JaxRuntimeError as error:
            result = error
        written = Path(folder).glob("*.after_optimizations.txt")
        return result, "".join(file.read_text(encoding="utf-8") for file in written)
