"""Goodput, the share of the wall time of a run that is spent on updates (``goodput.json``)."""

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_jax.config import DataError
from transformer_jax.errors import StoreError, complain
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.checked_json import read_checked, with_crc
from transformer_jax.files.json_text import finite_or_none
from transformer_jax.files.paths import in_store

KINDS_OF_TIME = ("start_up", "compile", "data_wait", "step", "evaluation", "checkpoint", "lost")
TRAINING = ("step", "data_wait")
"""Kinds that count for the speed of training."""

SECONDS_BETWEEN_WRITES = 10.0
# The current speed is a mean over the longest of these: seconds, share of the run, updates.
RECENT_SECONDS = 30.0
RECENT_SHARE = 0.1
RECENT_UPDATES = 10


class Clock:
    """Wall time of this process by kind. The current kind is ``kind``, since the time ``since``."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(KINDS_OF_TIME, 0.0)
        self.kind, self.since = "start_up", time.perf_counter()
        # Time in TRAINING at the beginning of recent updates.
        self._recent: deque[float] = deque()

    @contextmanager
    def spend(self, kind: str) -> Iterator[None]:
        """Count the time of the block as ``kind``, then return to the kind before."""
        interrupted = self.turn_to(kind)
        try:
            yield
        finally:
            self.turn_to(interrupted)

    def turn_to(self, kind: str) -> str:
        """Switch to ``kind`` and return the kind before."""
        now = time.perf_counter()
        self.seconds[self.kind] += now - self.since
        self.since = now
        # Every update begins with a wait for its batch.
        if kind == "data_wait" != self.kind:
            self._recent.append(sum(self.seconds[training_kind] for training_kind in TRAINING))
            window = max(RECENT_SECONDS, RECENT_SHARE * self._recent[-1])
            while len(self._recent) > RECENT_UPDATES + 1 and self._recent[-1] - self._recent[1] >= window:
                self._recent.popleft()
        before, self.kind = self.kind, kind
        return before

    def recent_update_seconds(self) -> float:
        """Return the mean time in ``TRAINING`` of recent updates, 0 before the second update."""
        return (self._recent[-1] - self._recent[0]) / max(len(self._recent) - 1, 1) if self._recent else 0.0

    def total(self, kinds: Iterable[str]) -> float:
        """Return the seconds of ``kinds`` until now."""
        self.turn_to(self.kind)
        return sum(self.seconds[kind] for kind in kinds)


class Goodput:
    """Wall time of a run by kind, over all its starts.

    ``compile`` is waiting for a compiled step, ``data_wait`` waiting for a batch, ``step`` updates
    that were kept, and ``lost`` updates that the next start repeats, because no checkpoint has
    them.
    """

    def __init__(self, path: Path, first_update: int, clock: Clock) -> None:
        """Read the file of an earlier start. Raises DataError when it is damaged."""
        self._path, self._clock = path, clock
        self._before = _earlier_seconds(path, first_update)
        self._written_at = 0.0
        # Updates and step seconds of the last two checkpoints: a kill leaves the last unfinished.
        self._saves = deque([(first_update, 0.0)], maxlen=2)

    def seconds(self) -> dict[str, float]:
        """Return the seconds by kind until now."""
        self._clock.turn_to(self._clock.kind)
        return {kind: self._before[kind] + self._clock.seconds[kind] for kind in KINDS_OF_TIME}

    def write_between_saves(self, step: int, after: float = SECONDS_BETWEEN_WRITES) -> None:
        """Write the file if ``after`` seconds have passed. A store gets it at checkpoints only."""
        if not in_store(self._path) and time.time() - self._written_at >= after:
            self.write(step)

    def saved(self, step: int) -> None:
        """Record that writing a checkpoint of update ``step`` has begun."""
        self._saves.append((step, self._clock.total(["step"])))

    def write(self, step: int) -> None:
        """Write the file, as of update ``step``, unless the folder of the run was removed."""
        if not (in_store(self._path) or self._path.parent.is_dir()):
            return
        self._written_at = time.time()
        seconds, steps = self.seconds(), self._clock.seconds["step"]
        content = {
            "step": step,
            "seconds": {kind: round(value, 3) for kind, value in seconds.items()},
            "unsaved_step_seconds": {str(saved): round(steps - before, 3) for saved, before in self._saves},
        }
        try:
            write_whole(self._path, json.dumps(with_crc(content), indent=2) + "\n")
        except StoreError as error:
            complain(f"WARNING: {error}. The time spent is written at the next checkpoint")

    def line(self) -> str:
        """Return the line for the end of a run."""
        seconds = self.seconds()
        others = [kind for kind in KINDS_OF_TIME if kind != "step" and seconds[kind] >= 0.05]
        details = ", ".join(f"{kind.replace('_', ' ')} {seconds[kind]:.1f} s" for kind in others)
        share = seconds["step"] / max(sum(seconds.values()), 1e-9)
        line = f"{share:.0%} of the time in updates ({seconds['step']:.1f} s)"
        return f"{line}; {details}" if details else line


def read_goodput(path: Path) -> dict[str, Any] | None:
    """Return ``goodput.json`` with ``seconds`` by kind, or None. Raises DataError if damaged."""
    content = read_checked(path)
    if content is None:
        return None
    try:
        seconds = {kind: float(finite_or_none(value) or 0.0) for kind, value in content["seconds"].items()}
        return {**content, "seconds": dict.fromkeys(KINDS_OF_TIME, 0.0) | seconds}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not the goodput.json of a run ({error})") from None


def _earlier_seconds(path: Path, first_update: int) -> dict[str, float]:
    """Return the seconds of earlier starts. Updates beyond ``first_update`` count as lost."""
    try:
        content = read_goodput(path)
        if content is None:
            return dict.fromkeys(KINDS_OF_TIME, 0.0)
        seconds = {kind: content["seconds"][kind] for kind in KINDS_OF_TIME}
        # Files of earlier versions have none.
        unsaved = content.get("unsaved_step_seconds", {})
        # An older checkpoint than these may be restored.
        lost = float(unsaved.get(str(first_update), max(unsaved.values(), default=0.0)))
        is_lost = content["step"] > first_update
    except (DataError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = str(error) if isinstance(error, DataError) else f"{path}: not the goodput.json of a run"
        raise DataError(f"{problem}; move it away to resume") from None
    if is_lost:
        seconds["step"] -= lost
        seconds["lost"] += lost
    return seconds
