"""Reports on compiled programs: text and JSON."""

import re
import textwrap
from collections import defaultdict

from transformer_jax.config import ExperimentConfig
from transformer_jax.config.checks import declared
from transformer_jax.tools.preflight.chips import Topology
from transformer_jax.tools.preflight.compiled_program import (
    Program,
    model_flops_utilization,
    roofline,
)

MIB = 2**20
GIB = 2**30
TERA = 1e12
# Characters of a line.
WIDTH = 120


def report(program: Program, topology: Topology, config: ExperimentConfig) -> str:
    """Return the report as text. Remedies are settings that ``config`` has."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in program.mesh.items())
    lines = [
        f"{topology.name}: {len(topology.devices)} devices, mesh {mesh}",
        f"{program.name}: {program.rows} rows of {program.width} positions; {program.parameters:,} parameters; "
        f"{program.compute_dtype} computation; compiled in {program.compile_seconds:.0f} s",
        "",
        *_memory(program),
    ]
    if not program.fits:
        return "\n".join([*lines, "", *_out_of_memory(program, config)])
    return "\n".join([*lines, "", *_collectives(program), "", *_speed(program, topology, config)])


STATE = {"train_step": "optimizer", "decode_step": "state of the search", "search": "state of the search"}
HELPS_TRAINING = {
    "does not fit": "--config.model.rematerialize=keep_projections or full; "
    "a larger --config.batching.accumulation_steps; fewer --config.batching.tokens_per_update; "
    "for long rows --config.model.attention_backend=tpu_flash, cudnn or blockwise; "
    "for parameters and optimizer a larger --config.mesh.fsdp or --config.mesh.tensor",
    "compute": "less recomputation (--config.model.rematerialize); more devices",
    "memory": "see the kinds above; "
    "more positions on a device or a larger --config.mesh.fsdp for the optimizer's share; bfloat16; "
    "fused attention for long rows (--config.model.attention_backend)",
    "interconnect": "more positions on a device; "
    "smaller --config.mesh.fsdp and --config.mesh.tensor, within a host of GPUs",
}
HELPS_DECODING = {
    "does not fit": "fewer --config.decoding.batch_tokens; a smaller --config.decoding.beam_width; "
    "a larger --config.mesh.tensor",
    "compute": "a smaller --config.decoding.beam_width; more devices",
    "memory": "see the kinds above; more --config.decoding.batch_tokens; "
    "a smaller --config.decoding.beam_width; a larger --config.mesh.tensor; bfloat16",
    "interconnect": "more --config.decoding.batch_tokens; a smaller --config.mesh.tensor, within a host of GPUs",
}


def _memory(program: Program) -> list[str]:
    available = "" if program.available == float("inf") else f" of {program.available / GIB:.2f}"
    lines = [
        "per device                              GiB",
        f"  parameters                       {program.parameter_bytes / GIB:8.3f}",
        f"  {STATE[program.name]:<33}{program.state_bytes / GIB:8.3f}",
        f"  activations, gradients, workspace{program.temporaries / GIB:8.3f}",
        f"  total                            {program.total / GIB:8.3f}{available}",
    ]
    if program.training_bytes:
        beside = program.total + program.training_bytes
        lines.append(f"  total beside the state of a run  {beside / GIB:8.3f}{available}")
    return lines


def _what_helps(program: Program, against: str, config: ExperimentConfig) -> str:
    remedies = HELPS_TRAINING if program.name == "train_step" else HELPS_DECODING

    def is_setting(remedy: str) -> bool:
        settings = re.findall(r"--config\.(\w+)\.(\w+)", remedy)
        return all(name in declared(type(getattr(config, block))) for block, name in settings)

    text = f"What helps: {'; '.join(filter(is_setting, remedies[against].split('; ')))}."
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _out_of_memory(program: Program, config: ExperimentConfig) -> list[str]:
    largest = [f"  {buffer.bytes / GIB:8.3f} GiB  {buffer.shape}  {buffer.name}" for buffer in program.largest]
    return [
        "DOES NOT FIT. The largest arrays on a device:",
        *(largest or ["  the compiler refused without naming them"]),
        _what_helps(program, "does not fit", config),
    ]


def _collectives(program: Program) -> list[str]:
    sums: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for collective in program.collectives:
        kind = f"{collective.kind} of slices" if collective.is_between_slices else collective.kind
        row = sums[kind, collective.group]
        row[0] += collective.times
        row[1] += collective.times * collective.bytes
        row[2] += collective.wire_bytes
    lines = ["collectives per step      among   times    MiB of results   MiB sent by a device"]
    for (kind, group), (times, size, sent) in sorted(sums.items(), key=lambda item: -item[1][2]):
        lines.append(f"  {kind:<22} {group:>6} {times:>7,} {size / MIB:>19,.1f} {sent / MIB:>22,.1f}")
    along = ", ".join(f"{axis} {sent / MIB:,.1f}" for axis, sent in program.sent.items())
    return (
        [*lines, f"MiB sent by a device along each axis of the interconnect: {along}"] if sums else ["no collectives"]
    )


def _speed(program: Program, topology: Topology, config: ExperimentConfig) -> list[str]:
    needed = program.model_flops / len(topology.devices)
    lines = [
        f"matrix products: {program.flops / TERA:.3f} TFLOP per device, {needed / TERA:.3f} without "
        f"recomputation; memory traffic {program.traffic / GIB:.2f} GiB:",
        *(f"  {moved / GIB:8.3f} GiB  {kind}" for kind, moved in program.traffic_kinds.items()),
    ]
    if not topology.chip:
        return [*lines, "no roofline: the speed of these devices is unknown"]
    limits, links = roofline(program, topology.chip), topology.chip.links
    unknown = [axis for axis, sent in program.sent.items() if sent and axis not in links]
    interconnect = "unknown" if unknown else f"{limits.interconnect * 1e3:.2f} ms"
    bound = f"bound by {limits.bound}" + " (without the interconnect)" * bool(unknown)
    return [
        *lines,
        f"{topology.chip.name} at full speed: compute {limits.compute * 1e3:.2f} ms, memory {limits.memory * 1e3:.2f} ms, "
        f"interconnect {interconnect}",
        f"{bound}; if the three overlap perfectly: {limits.seconds * 1e3:.2f} ms, "
        f"{program.positions / limits.seconds:,.0f} target positions/s, "
        f"MFU {model_flops_utilization(program, topology.chip):.0%}",
        _what_helps(program, limits.bound, config),
        "Estimates; nothing was run. Memory traffic: reads and writes of the program's instructions.",
    ]
