"""Scheduler of a worker: claims one trial, or as many as one program can train."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from optuna.trial import Trial

from transformer_jax.config import ExperimentConfig, structure_of
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tools.sweeps.compiled_first import CompiledFirst
from transformer_jax.tools.sweeps.storage import UNREACHABLE
from transformer_jax.tools.sweeps.study import IS_RETRY, SharedStudy, number_of
from transformer_jax.tools.sweeps.trial_folder import folder_of


class Claimed(NamedTuple):
    """A trial that this worker claimed, with its settings and its run directory."""

    trial: Trial
    number: int
    config: ExperimentConfig
    folder: Path


Fail = Callable[[Trial, Exception], None]
"""Records that a trial cannot be trained."""


class Scheduler:
    """Chooses the next trials of one worker, by what it trained last; ``vectorize``: the most trials at a time."""

    def __init__(self, study: SharedStudy, workdir: Path, vectorize: int) -> None:
        self._study, self._workdir, self._vectorize = study, workdir, vectorize
        self._preference = CompiledFirst(study)
        # Trials whose folders another process is using, and until when to leave them alone.
        self._busy: dict[int, float] = {}
        # Numbers of the trials that are trained one at a time.
        self._alone: set[int] = set()

    def take(self, fail: Fail) -> list[Claimed]:
        """One trial and others that differ in hyperparameters alone, at the same update; empty if none is left.

        Trials whose settings exclude each other fail here. A retried trial is taken alone: its worker
        may have died of it, or of too many trials at once.
        """
        first = self._claim(self._busy_now(), fail)
        if first is None:
            return []
        held, passed = [first], set[int]()
        try:
            self._preference.note(first.config)
            unlike = self._preference.unlike(first.config) if self._vectorize > 1 else set()
            # A sampler may choose settings of another program every time.
            while len(held) + len(passed) < self._vectorize and not self._trains_alone(first):
                trial = self._claim(self._busy_now() | self._alone | unlike | passed, fail)
                if trial is None:
                    break
                held.append(trial)
                if self._trains_alone(trial) or not _can_be_vectorized(first, trial):
                    self._study.put_back(trial.trial)
                    passed.add(held.pop().number)
        except BaseException:
            self._put_back(each.trial for each in held)
            raise
        return held

    def leave_for_now(self, number: int) -> None:
        """Skips the trial for a while: another process is using its folder, so its worker is not dead."""
        self._busy[number] = time.monotonic() + self._study.grace_seconds

    def take_fewer(self, than: int) -> None:
        """Halves the number of trials at a time, which was ``than``."""
        self._vectorize = than // 2

    def take_alone(self, numbers: Iterable[int]) -> None:
        """Trains these trials one at a time from now on: one of them fails, and alone it shows which."""
        self._alone.update(numbers)

    def _trains_alone(self, claimed: Claimed) -> bool:
        return claimed.number in self._alone or IS_RETRY in claimed.trial.user_attrs

    def _put_back(self, trials: Iterable[Trial]) -> None:
        """Puts back as many as the study can be reached for; the others are enqueued again after the grace."""
        for trial in trials:
            with suppress(*UNREACHABLE):
                self._study.put_back(trial)

    def _busy_now(self) -> set[int]:
        return {number for number, until in self._busy.items() if time.monotonic() < until}

    def _claim(self, but: set[int], fail: Fail) -> Claimed | None:
        while (trial := self._study.claim(self._preference.ranks(), but)) is not None:
            try:
                config = self._study.sweep.settings(self._study.point(trial))
            except (*UNREACHABLE, KeyboardInterrupt):
                self._put_back([trial])
                raise
            except Exception as error:
                fail(trial, error)
                continue
            number = number_of(trial)
            return Claimed(trial, number, config, folder_of(self._workdir, number))
        return None


def _can_be_vectorized(one: Claimed, other: Claimed) -> bool:
    """Whether they differ in hyperparameters alone, and are at the same update."""
    behind = [RunDirectory(each.folder).checkpoint_steps()[-1:] for each in (one, other)]
    return structure_of(one.config) == structure_of(other.config) and behind[0] == behind[1]
