"""Where the time of a run went: how much of it moved the model forward, and what took the rest."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.runtime.atomic_files import write_whole

KINDS = ("start_up", "compile", "data_wait", "step", "evaluation", "checkpoint", "lost")


class Goodput:
    """Seconds of a run by what they were spent on, over all its starts; kept in ``goodput.json``.

    ``compile`` is waiting for a step to be compiled, ``data_wait`` waiting for a batch, ``step`` updates that stayed, and
    ``lost`` updates after the newest checkpoint of a start that died, which the next start made again. Between the death of a
    process and the next start no time is counted. Of vectorized runs each counts its part.
    """

    def __init__(self, path: Path, first: int, started: float | None = None, runs: int = 1) -> None:
        """Goes on with the file of an earlier start, if there is one, from its update ``first``.

        This start began at ``started`` of ``time.perf_counter`` (now, if None), and is one of so many ``runs`` at once.

        Raises DataError when the file is not one.
        """
        self._path = path
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self._since_checkpoint = 0.0
        self._part = 1 / runs
        if path.is_file():
            self._take_up(first)
        self._kind, self._since = "start_up", time.perf_counter() if started is None else started

    @contextmanager
    def spend(self, kind: str) -> Iterator[None]:
        """What happens inside counts as ``kind``, and not as what it interrupts."""
        interrupted = self.turn_to(kind)
        yield
        self.turn_to(interrupted)

    def turn_to(self, kind: str) -> str:
        """From now on time counts as ``kind``; returns what it counted as before."""
        now = time.perf_counter()
        elapsed, self._since = (now - self._since) * self._part, now
        self.seconds[self._kind] += elapsed
        if self._kind == "step":
            self._since_checkpoint += elapsed
        before, self._kind = self._kind, kind
        return before

    def share_with(self, runs: int) -> None:
        """From now on time is that of so many runs at once."""
        self.turn_to(self._kind)
        self._part = 1 / runs

    def saved(self) -> None:
        """A checkpoint was written: from here on there is something new to lose."""
        self._since_checkpoint = 0.0

    def write(self, step: int) -> None:
        """Writes the file, as of update ``step``."""
        self.turn_to(self._kind)
        content = {
            "step": step,
            "seconds": {kind: round(value, 3) for kind, value in self.seconds.items()},
            "step_seconds_since_checkpoint": round(self._since_checkpoint, 3),
            "goodput": round(self.share("step"), 4),
            "data_wait_of_step": round(self.seconds["data_wait"] / max(self.seconds["step"], 1e-9), 4),
        }
        write_whole(self._path, json.dumps(content, indent=2) + "\n")

    def share(self, kind: str) -> float:
        """Of all the time, from 0 to 1."""
        return self.seconds[kind] / max(sum(self.seconds.values()), 1e-9)

    def line(self) -> str:
        """One line for the end of a run."""
        others = [kind for kind in KINDS if kind != "step" and self.seconds[kind] >= 0.05]
        details = ", ".join(f"{kind.replace('_', ' ')} {self.seconds[kind]:.1f} s" for kind in others)
        return f"{self.share('step'):.0%} of the time in updates ({self.seconds['step']:.1f} s); {details}"

    def _take_up(self, first: int) -> None:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            self.seconds |= {kind: float(content["seconds"][kind]) for kind in KINDS}
            died_at, unsaved = content["step"], float(content["step_seconds_since_checkpoint"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{self._path}: not the time sheet of a run; move it away to resume") from None
        if died_at > first:
            self.seconds["step"] -= unsaved
            self.seconds["lost"] += unsaved
