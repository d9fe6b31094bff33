"""Goodput: the share of the wall time of a run that is spent on updates, and the other uses of time (``goodput.json``)."""

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.runtime.atomic_files import write_whole

KINDS = ("start_up", "compile", "data_wait", "step", "evaluation", "checkpoint", "lost")
TRAINING = ("step", "data_wait")
"""Kinds that count for the speed of training."""

SECONDS_BETWEEN_WRITES = 10.0
# The current speed is measured over the last 30 seconds or the last 10 % of the run, and over at least 10 updates.
RECENT_SECONDS, RECENT_SHARE, RECENT_UPDATES = 30.0, 0.1, 10

Item = TypeVar("Item")


class Clock:
    """Wall time of this process by kind; the current one is ``kind``, since the time ``since``."""

    def __init__(self) -> None:
        """Starts with ``start_up``."""
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self.kind, self.since = "start_up", time.perf_counter()
        # Time in TRAINING at the beginning of recent updates.
        self._recent: deque[float] = deque()

    @contextmanager
    def spend(self, kind: str) -> Iterator[None]:
        """Counts the time of the block as ``kind``, then returns to the kind before."""
        interrupted = self.turn_to(kind)
        try:
            yield
        finally:
            self.turn_to(interrupted)

    def waiting_for(self, batches: Iterable[Item]) -> Iterator[Item]:
        """Yields ``batches``; the time to get each counts as ``data_wait``."""
        items = iter(batches)
        while True:
            with self.spend("data_wait"):
                item = next(items)
            yield item

    def turn_to(self, kind: str) -> str:
        """Switches to ``kind`` and returns the previous one."""
        now = time.perf_counter()
        self.seconds[self.kind] += now - self.since
        self.since = now
        # Every update begins with a wait for its batch.
        if kind == "data_wait" != self.kind:
            self._recent.append(sum(self.seconds[each] for each in TRAINING))
            window = max(RECENT_SECONDS, RECENT_SHARE * self._recent[-1])
            while len(self._recent) > RECENT_UPDATES + 1 and self._recent[-1] - self._recent[1] >= window:
                self._recent.popleft()
        before, self.kind = self.kind, kind
        return before

    def recent_update_seconds(self) -> float:
        """Mean time in ``TRAINING`` of recent updates; 0 before the second."""
        return (self._recent[-1] - self._recent[0]) / max(len(self._recent) - 1, 1) if self._recent else 0.0

    def total(self, kinds: Iterable[str]) -> float:
        """Seconds of ``kinds`` until now."""
        self.turn_to(self.kind)
        return sum(self.seconds[kind] for kind in kinds)


class Goodput:
    """Wall time of a run by kind, over all its starts.

    ``compile`` is waiting for a step to be compiled, ``data_wait`` waiting for a batch, ``step`` updates that were kept, and
    ``lost`` updates after the newest checkpoint of a killed process, which the next start repeats.

    Runtime goodput (``goodput`` in the file) is the share of ``step`` in these seconds. Scheduling goodput is their share in
    the time since the first start; the rest passed between a process and the next, with the last ``SECONDS_BETWEEN_WRITES`` of
    one that was killed, and the imports of the next. Program goodput, the utilization of the chips (MFU), needs their speed:
    ``preflight --config=RUN`` prints it with the other two. The terms are Google's ("ML Productivity Goodput", 2024).
    """

    def __init__(self, path: Path, first_update: int, clock: Clock) -> None:
        """Continues the file of an earlier start, if there is one. Raises DataError when the file is damaged."""
        self._path, self._clock = path, clock
        self._before, self._between = _earlier_seconds(path, first_update, time.time() - clock.total(KINDS))
        self._written_at = 0.0
        # The updates of the last two checkpoints, and the step seconds at them: a kill leaves the last one unfinished.
        self._saves = deque([(first_update, 0.0)] * 2, maxlen=2)

    def seconds(self) -> dict[str, float]:
        """Seconds by kind until now."""
        self._clock.turn_to(self._clock.kind)
        return {kind: self._before[kind] + self._clock.seconds[kind] for kind in KINDS}

    def write_at_intervals(self, step: int) -> None:
        """Writes the file unless that was done ``SECONDS_BETWEEN_WRITES`` ago or later."""
        if time.time() - self._written_at >= SECONDS_BETWEEN_WRITES:
            self.write(step)

    def saved(self, step: int) -> None:
        """Records that writing a checkpoint of update ``step`` has begun."""
        self._saves.append((step, self._clock.total(["step"])))

    def write(self, step: int) -> None:
        """Writes the file, as of update ``step``."""
        seconds, self._written_at = self.seconds(), time.time()
        (before, seconds_before), (checkpoint, seconds_at_checkpoint) = self._saves
        steps = self._clock.seconds["step"]
        content = {
            "step": step,
            "seconds": {kind: round(value, 3) for kind, value in seconds.items()},
            "checkpoint": checkpoint,
            "step_seconds_since_checkpoint": round(steps - seconds_at_checkpoint, 3),
            "checkpoint_before": before,
            "step_seconds_since_checkpoint_before": round(steps - seconds_before, 3),
            "seconds_between_starts": round(self._between, 3),
            "written_at": round(self._written_at, 3),
            "goodput": round(_share_of_steps(seconds), 4),
            "scheduling_goodput": round(1 - self._between / (self._between + sum(seconds.values())), 4),
            "data_wait_of_step": round(seconds["data_wait"] / max(seconds["step"], 1e-9), 4),
        }
        write_whole(self._path, json.dumps(content, indent=2) + "\n")

    def line(self) -> str:
        """One line for the end of a run."""
        seconds = self.seconds()
        others = [kind for kind in KINDS if kind != "step" and seconds[kind] >= 0.05]
        details = ", ".join(f"{kind.replace('_', ' ')} {seconds[kind]:.1f} s" for kind in others)
        line = f"{_share_of_steps(seconds):.0%} of the time in updates ({seconds['step']:.1f} s)"
        return f"{line}; {details}" if details else line


def _share_of_steps(seconds: dict[str, float]) -> float:
    return seconds["step"] / max(sum(seconds.values()), 1e-9)


def _earlier_seconds(path: Path, first_update: int, now: float) -> tuple[dict[str, float], float]:
    """Seconds of earlier starts, and between starts until ``now``; updates beyond ``first_update`` count as lost."""
    if not path.is_file():
        return dict.fromkeys(KINDS, 0.0), 0.0
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        seconds = {kind: float(content["seconds"][kind]) for kind in KINDS}
        died_at, unsaved = content["step"], float(content["step_seconds_since_checkpoint"])
        checkpoint = content.get("checkpoint", died_at)
        # The newest checkpoint was unfinished. Files of earlier versions have no other.
        if first_update < checkpoint and "checkpoint_before" in content:
            checkpoint = content["checkpoint_before"]
            unsaved = float(content["step_seconds_since_checkpoint_before"])
        if died_at > checkpoint:
            # A local checkpoint may be newer.
            unsaved *= min((died_at - first_update) / (died_at - checkpoint), 1.0)
        # Files of earlier versions have no times of day.
        pause = max(now - float(content.get("written_at", now)), 0.0)
        between = float(content.get("seconds_between_starts", 0.0)) + pause
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: not the goodput.json of a run; move it away to resume") from None
    if died_at > first_update:
        seconds["step"] -= unsaved
        seconds["lost"] += unsaved
    return seconds, between
