"""Goodput of a run from its own log: scheduling x runtime x program ("ML Productivity Goodput", Google, 2024)."""

from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.runs.goodput import KINDS
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tools.preflight.chips import Topology
from transformer_jax.tools.preflight.program import Program


def run_goodput(folder: Path, program: Program, topology: Topology) -> list[str]:
    """Lines for the report on the training step of the run in ``folder``; none if it has no log, or made no update.

    Program goodput is MFU: the floating-point operations that its target tokens need, without recomputation and padding, as
    a share of the peak of the devices in the time of its updates. They are counted at the width of ``program``.

    Raises DataError when a file is damaged.
    """
    run = RunDirectory(folder)
    if not (run.goodput.is_file() and run.run_record.is_file()) or program.name != "train_step":
        return []
    try:
        sheet = parse_json(run.goodput.read_text(encoding="utf-8"))
        seconds = {kind: float(sheet["seconds"][kind]) for kind in KINDS}
        scheduling, runtime = float(sheet["scheduling_goodput"]), float(sheet["goodput"])
        devices = len(parse_json(run.run_record.read_text(encoding="utf-8"))[-1]["devices"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(f"{folder}: goodput.json or run.json is not a file that a run writes: {error}") from None
    tokens = [each["train/target_tokens"] for each in read_metrics(run.metrics) if each.get("train/target_tokens")]
    if not tokens or not seconds["step"]:
        return []
    badput = [kind for kind in KINDS if kind != "step" and seconds[kind] >= 0.005 * sum(seconds.values())]
    shares = ", ".join(f"{kind.replace('_', ' ')} {seconds[kind] / sum(seconds.values()):.1%}" for kind in badput)
    lines = [
        "",
        f"{folder}: {tokens[-1] / seconds['step']:,.0f} target tokens/s in updates; other time: {shares or 'none'}",
    ]
    if topology.chip is None:
        unknown = "unknown: the speed of these devices is not known (--calibration)"
    elif devices != len(topology.devices):
        unknown = f"unknown: the run has {devices} devices, {topology.name} {len(topology.devices)}"
    else:
        peak = devices * topology.chip.peak(program.compute_dtype)
        mfu = program.model_flops / program.positions * tokens[-1] / seconds["step"] / peak
        product = (
            f"goodput {scheduling * runtime * mfu:.1%} = scheduling {scheduling:.1%} x runtime {runtime:.1%} x program"
        )
        return [*lines, f"{product} {mfu:.1%} (MFU)"]
    return [*lines, f"goodput = scheduling {scheduling:.1%} x runtime {runtime:.1%} x program ({unknown})"]
