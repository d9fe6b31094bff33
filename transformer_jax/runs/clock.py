"""Accounting of the wall time of a process: one clock, shared by all runs that train in it."""

import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

KINDS = ("start_up", "compile", "data_wait", "step", "evaluation", "checkpoint", "lost")
TRAINING = ("step", "data_wait")
"""The kinds that count for the speed of training."""

REPEATED = (*TRAINING, "evaluation", "checkpoint")
"""The kinds that go on as long as a run trains."""


class Clock:
    """Wall time by category; at any moment exactly one category counts.

    ``kind`` counts since ``turned``.
    ``seconds`` are those of the process, ``seconds_of_a_run`` the part of each of the ``runs`` that share it.
    """

    def __init__(self, runs: int = 1) -> None:
        """Starts with ``start_up``, shared by ``runs`` runs."""
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self.seconds_of_a_run = dict.fromkeys(KINDS, 0.0)
        self.runs = runs
        self.kind, self.turned = "start_up", time.perf_counter()
        self._update_began: float | None = None
        self._updates: deque[float] = deque(maxlen=101)

    @contextmanager
    def spend(self, kind: str) -> Iterator[None]:
        """Attributes the time of the block to ``kind``, and not to what it interrupts, also when it raises."""
        interrupted = self.turn_to(kind)
        try:
            yield
        finally:
            self.turn_to(interrupted)

    def turn_to(self, kind: str) -> str:
        """Switches to ``kind`` and returns the previous one."""
        now = time.perf_counter()
        elapsed, self.turned = now - self.turned, now
        self.seconds[self.kind] += elapsed
        self.seconds_of_a_run[self.kind] += elapsed / self.runs
        if kind == "data_wait" != self.kind:
            # Every update begins with it.
            if self._update_began is not None:
                self._updates.append(now - self._update_began)
            self._update_began = now
        before, self.kind = self.kind, kind
        return before

    def median_update_seconds(self) -> float:
        """Of the last hundred updates; 0 before there are two."""
        return statistics.median(list(self._updates)) if self._updates else 0.0

    def divide_among(self, runs: int) -> None:
        """Divides the time among ``runs`` runs from now on."""
        self.settle()
        self.runs = max(runs, 1)

    def settle(self) -> None:
        """Counts the time until now."""
        self.turn_to(self.kind)

    def training_seconds(self) -> float:
        """Seconds so far of updates and waiting for their data, over all runs."""
        self.settle()
        return sum(self.seconds[kind] for kind in TRAINING)
