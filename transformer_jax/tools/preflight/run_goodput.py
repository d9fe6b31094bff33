"""Goodput of a run from its own log: scheduling x runtime x program ("ML Productivity Goodput", Google, 2024)."""

from pathlib import Path
from typing import NamedTuple

from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.runs.goodput import KINDS
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tools.preflight.chips import Topology
from transformer_jax.tools.preflight.program import Program


class RunGoodput(NamedTuple):
    """The three factors of the goodput of the run in ``folder``, and its seconds by kind.

    ``program`` is MFU: the floating-point operations that its target tokens need, without recomputation and padding, as a share
    of the peak of the devices in the time of its updates; None if it is ``unknown``, for this reason.
    """

    folder: str
    seconds: dict[str, float]
    target_tokens_per_second: float
    scheduling: float
    runtime: float
    program: float | None
    unknown: str = ""

    def lines(self) -> list[str]:
        """Lines for the report."""
        total, rate = sum(self.seconds.values()), f"{self.target_tokens_per_second:,.0f} target tokens/s in updates"
        badput = [kind for kind in KINDS if kind != "step" and self.seconds[kind] >= 0.005 * total]
        shares = ", ".join(f"{kind.replace('_', ' ')} {self.seconds[kind] / total:.1%}" for kind in badput)
        factors = f"= scheduling {self.scheduling:.1%} x runtime {self.runtime:.1%} x program"
        if self.program is None:
            product = f"goodput {factors} (unknown: {self.unknown})"
        else:
            product = f"goodput {self.scheduling * self.runtime * self.program:.1%} {factors} {self.program:.1%} (MFU)"
        return ["", f"{self.folder}: {rate}; other time: {shares or 'none'}", product]


def run_goodput(source: str, program: Program, topology: Topology) -> RunGoodput | None:
    """The goodput of the run whose directory or ``config.json`` is ``source``, for the training step ``program``.

    None for another program, and for a run without a log or an update. Operations are counted at the width of ``program``.
    Raises DataError when a file is damaged.
    """
    folder = Path(source).expanduser()
    run = RunDirectory(folder.parent if folder.suffix == ".json" else folder)
    if not (run.goodput.is_file() and run.run_record.is_file()) or program.name != "train_step":
        return None
    try:
        sheet = parse_json(run.goodput.read_text(encoding="utf-8"))
        seconds = {kind: float(sheet["seconds"][kind]) for kind in KINDS}
        updates, factors = int(sheet["step"]), (float(sheet["scheduling_goodput"]), float(sheet["goodput"]))
        starts = parse_json(run.run_record.read_text(encoding="utf-8"))
        devices = list(dict.fromkeys(len(start.get("devices", ())) for start in starts))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{run.path}: goodput.json or run.json is not a file that a run writes: {error}") from None
    counted = [each for each in read_metrics(run.metrics) if each.get("train/target_tokens") and each["step"]]
    if not counted or not seconds["step"]:
        return None
    # Updates after the last line have its mean.
    rate = counted[-1]["train/target_tokens"] * updates / counted[-1]["step"] / seconds["step"]
    found = RunGoodput(str(run.path), seconds, rate, *factors, program=None)
    if topology.chip is None:
        return found._replace(unknown="the speed of these devices is not known (--calibration)")
    if devices != [len(topology.devices)]:
        used = " and ".join(map(str, devices))
        return found._replace(unknown=f"the run has {used} devices, {topology.name} {len(topology.devices)}")
    peak = len(topology.devices) * topology.chip.peak(program.compute_dtype)
    return found._replace(program=program.model_flops / program.positions * rate / peak)
