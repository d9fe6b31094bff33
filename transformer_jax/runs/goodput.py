"""Goodput: the share of the time of a run spent on updates, and what took the rest; kept in ``goodput.json``."""

import json
from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.runs.clock import KINDS, Clock
from transformer_jax.runtime.atomic_files import write_whole


class Goodput:
    """Wall time of a run by category, over all its starts.

    ``compile`` is waiting for a step to be compiled, ``data_wait`` waiting for a batch, ``step`` updates that stayed, and
    ``lost`` updates after the newest checkpoint of a start that died, which the next start made again. Between the death of a
    process and the next start no time is counted.
    """

    def __init__(self, path: Path, first: int, clock: Clock) -> None:
        """Continues the file of an earlier start, if there is one, at update ``first``, with what ``clock`` counts for a run.

        Raises DataError when the file is not one.
        """
        self._path, self._clock = path, clock
        self._before = _earlier_seconds(path, first)
        self._steps_at_checkpoint = 0.0

    def seconds(self) -> dict[str, float]:
        """By kind, until now."""
        self._clock.settle()
        return {kind: self._before[kind] + self._clock.seconds_of_a_run[kind] for kind in KINDS}

    def saved(self) -> None:
        """Records a checkpoint: only updates after it can be lost."""
        self._clock.settle()
        self._steps_at_checkpoint = self._clock.seconds_of_a_run["step"]

    def write(self, step: int) -> None:
        """Writes the file, as of update ``step``."""
        seconds = self.seconds()
        unsaved = self._clock.seconds_of_a_run["step"] - self._steps_at_checkpoint
        content = {
            "step": step,
            "seconds": {kind: round(value, 3) for kind, value in seconds.items()},
            "step_seconds_since_checkpoint": round(unsaved, 3),
            "goodput": round(_share(seconds, "step"), 4),
            "data_wait_of_step": round(seconds["data_wait"] / max(seconds["step"], 1e-9), 4),
        }
        write_whole(self._path, json.dumps(content, indent=2) + "\n")

    def line(self) -> str:
        """One line for the end of a run."""
        seconds = self.seconds()
        others = [kind for kind in KINDS if kind != "step" and seconds[kind] >= 0.05]
        details = ", ".join(f"{kind.replace('_', ' ')} {seconds[kind]:.1f} s" for kind in others)
        return f"{_share(seconds, 'step'):.0%} of the time in updates ({seconds['step']:.1f} s); {details}"


def _share(seconds: dict[str, float], kind: str) -> float:
    return seconds[kind] / max(sum(seconds.values()), 1e-9)


def _earlier_seconds(path: Path, first: int) -> dict[str, float]:
    """Seconds of earlier starts; updates that they made beyond update ``first`` are lost."""
    if not path.is_file():
        return dict.fromkeys(KINDS, 0.0)
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        seconds = {kind: float(content["seconds"][kind]) for kind in KINDS}
        died_at, unsaved = content["step"], float(content["step_seconds_since_checkpoint"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: not the goodput.json of a run; move it away to resume") from None
    if died_at > first:
        seconds["step"] -= unsaved
        seconds["lost"] += unsaved
    return seconds
