"""Measured speeds of devices, in a file, in place of those of their data sheets."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.config import ConfigError
from transformer_jax.tools.preflight.chips import Chip, Topology
from transformer_jax.tools.preflight.interconnect import axis_names


class Calibration(NamedTuple):
    """Speeds of one device of a kind: operations a second by operand type, bytes a second to memory and along each axis."""

    device: str
    devices: int
    matmul_flops: dict[str, float]
    memory_bandwidth: float
    links: dict[str, float]
    jax: str


def to_json(calibration: Calibration) -> str:
    """The content of a calibration file."""
    return json.dumps(calibration._asdict(), indent=1) + "\n"


def load_calibration(file: Path) -> Calibration:
    """Reads the file that ``calibrate`` wrote.

    Raises ConfigError, with the key, when it is none.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--calibration: {file}: {error}; transformer-jax calibrate writes one") from None
    fields = set(Calibration._fields)
    if not isinstance(content, dict) or set(content) != fields:
        given = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise ConfigError(
            f"--calibration: {file}: has {given}, not {sorted(fields)}; transformer-jax calibrate writes one"
        )
    _require_speeds(file, "matmul_flops", content["matmul_flops"], {"bfloat16", "float32"})
    _require_speeds(file, "links", content["links"], set())
    _require_speeds(file, "memory_bandwidth", {"": content["memory_bandwidth"]}, set())
    return Calibration(**content)


def calibrated(topology: Topology, calibration: Calibration) -> Topology:
    """The topology with the measured speeds; an axis that was not measured keeps that of the data sheet.

    Raises ConfigError when they are those of another kind of device.
    """
    kind = topology.devices[0].device_kind
    if calibration.device not in kind:
        raise ConfigError(f"--calibration: measured on {calibration.device!r}, and {topology.name} is {kind!r}")
    flops, float32_flops = (float(calibration.matmul_flops[dtype]) for dtype in ("bfloat16", "float32"))
    known = topology.chip or Chip("", flops, math.inf, 0.0, {}, float32_flops)
    speeds = {**known.links, **calibration.links}
    chip = known._replace(
        name=f"{calibration.device} (measured)",
        flops=flops,
        float32_flops=float32_flops,
        memory_bandwidth=float(calibration.memory_bandwidth),
        links={name: float(speeds[name]) for name in axis_names(topology.devices) if name in speeds},
    )
    return topology._replace(chip=chip)


def _require_speeds(file: Path, key: str, speeds: Any, names: set[str]) -> None:
    is_fine = isinstance(speeds, dict) and names <= set(speeds)
    if not is_fine or not all(isinstance(each, int | float) and 0 < each < math.inf for each in speeds.values()):
        raise ConfigError(f"--calibration: {file}: {key}: {speeds} is not positive and finite; measure again")
