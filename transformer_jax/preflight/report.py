"""A compiled step as text and as JSON."""

from collections import defaultdict

from transformer_jax.config import ExperimentConfig
from transformer_jax.preflight.chips import Topology
from transformer_jax.preflight.program import Program
from transformer_jax.preflight.roofline import roofline

MIB, GIB = 2**20, 2**30


def report(program: Program, topology: Topology) -> str:
    """Everything, for a reader."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in program.mesh.items())
    lines = [
        f"{topology.name}: {len(topology.devices)} devices, mesh {mesh}",
        f"{program.rows} rows of {program.width} positions a side; {program.parameters:,} parameters; "
        f"compiled in {program.compile_seconds:.0f} s",
        "",
        *_memory(program),
    ]
    if not program.fits:
        return "\n".join([*lines, "", *_misfit(program)])
    return "\n".join([*lines, "", *_collectives(program), "", *_speed(program, topology)])


def summary(program: Program, topology: Topology, config: ExperimentConfig) -> str:
    """A row of the table of a search: what it is, what it needs, what it can reach."""
    mesh = " x ".join(str(size) for size in program.mesh.values())
    policy = getattr(config.model, "rematerialise", "none")
    what = f"| {mesh} | {config.batching.tokens_per_update:,} | {policy} | {program.total / GIB:.2f} "
    if not program.fits or not topology.chip:
        return what + "| does not fit | | |"
    limits = roofline(program, topology.chip)
    return what + f"| {limits.seconds * 1e3:.2f} | {limits.bound} | {positions_per_second(program, topology):,.0f} |"


SUMMARY_HEAD = (
    "| mesh data x fsdp x tensor | tokens_per_update | rematerialise | GiB | at best ms | bound | target positions/s |\n"
    "|---|---:|---|---:|---:|---|---:|"
)


def positions_per_second(program: Program, topology: Topology) -> float:
    """Target positions a second, at best; 0 where nothing is known of the devices or the program does not fit."""
    if not topology.chip or not program.fits:
        return 0.0
    return program.rows * program.width / roofline(program, topology.chip).seconds


def to_json(program: Program, topology: Topology) -> dict[str, object]:
    """The same as what ``json.dumps`` takes."""
    content = program._asdict() | {"topology": topology.name, "total": program.total}
    content["largest"] = [buffer._asdict() for buffer in program.largest]
    content["collectives"] = [collective._asdict() for collective in program.collectives]
    if topology.chip and program.fits:
        limits = roofline(program, topology.chip)
        content["roofline"] = limits._asdict() | {"seconds": limits.seconds, "bound": limits.bound}
    content["available"] = None if program.available == float("inf") else program.available
    return content


def _memory(program: Program) -> list[str]:
    available = "" if program.available == float("inf") else f" of {program.available / GIB:.2f}"
    return [
        "per device                              GiB",
        f"  parameters                       {program.parameter_bytes / GIB:8.3f}",
        f"  optimizer                        {program.optimizer_bytes / GIB:8.3f}",
        f"  activations, gradients, workspace{program.temporaries / GIB:8.3f}",
        f"  total                            {program.total / GIB:8.3f}{available}",
    ]


def _misfit(program: Program) -> list[str]:
    lines = ["DOES NOT FIT. The largest arrays on a device:"]
    for buffer in program.largest:
        lines.append(f"  {buffer.bytes / GIB:8.3f} GiB  {buffer.name}, of shape {list(buffer.shape)} over all devices")
    return [
        *lines,
        "What helps: --config.model.rematerialise=keep_projections or full; a larger --config.batching.accumulation_steps, or",
        "fewer --config.batching.tokens_per_update; for long rows --config.model.attention_backend=tpu_flash or blockwise; for",
        "parameters and optimizer a larger --config.mesh.fsdp or --config.mesh.tensor. --search tries them.",
    ]


def _collectives(program: Program) -> list[str]:
    sums: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for collective in program.collectives:
        row = sums[collective.kind, collective.group]
        row[0] += collective.times
        row[1] += collective.times * collective.bytes
        row[2] += collective.wire_bytes
    lines = ["collectives a step        among   times    MiB of results   MiB sent by a device"]
    for (kind, group), (times, size, sent) in sorted(sums.items(), key=lambda item: -item[1][2]):
        lines.append(f"  {kind:<22} {group:>6} {times:>7,} {size / MIB:>19,.1f} {sent / MIB:>22,.1f}")
    return lines if sums else ["no collectives"]


def _speed(program: Program, topology: Topology) -> list[str]:
    devices = len(topology.devices)
    lines = [
        f"products of the model: {program.model_flops / devices / 1e12:.3f} TFLOP a device and step; "
        f"memory traffic {program.traffic / GIB:.2f} GiB",
    ]
    if not topology.chip:
        return [*lines, "no roofline: the speed of these devices is not known"]
    limits = roofline(program, topology.chip)
    lines.append(
        f"{topology.chip.name} at full speed: compute {limits.compute * 1e3:.2f} ms, memory {limits.memory * 1e3:.2f} ms, "
        f"interconnect {limits.interconnect * 1e3:.2f} ms"
    )
    share = limits.compute / limits.seconds
    return [
        *lines,
        f"bound by {limits.bound}: a step takes at least {limits.seconds * 1e3:.2f} ms, "
        f"{positions_per_second(program, topology):,.0f} target positions/s, MFU at most {share:.0%}",
    ]
