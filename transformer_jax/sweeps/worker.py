"""One worker of a sweep: claims trials and trains them, one after another, until all have ended."""

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from optuna.trial import Trial, TrialState

from transformer_jax.config import ConfigError
from transformer_jax.run_directory import RunDirectory, RunIsBusy
from transformer_jax.sweeps.compiled_first import CompiledFirst
from transformer_jax.sweeps.liveness import BEATS_A_GRACE, alive
from transformer_jax.sweeps.storage import UNREACHABLE
from transformer_jax.sweeps.study import SharedStudy, best_of, is_over, number_of
from transformer_jax.sweeps.trial_folder import folder_of, minutes_spent, validations

if TYPE_CHECKING:
    from transformer_jax.loop import Judge, Outcome

SECONDS_BETWEEN_LOOKS = 1.0
FAILURES_IN_A_ROW = 3

Train = Callable[..., Any]
"""``train(config, workdir, judge=judge) -> Outcome``: trains in the folder, or goes on there; ``run_training`` is one."""


class Failure(NamedTuple):
    """Why a trial failed; ``is_its_own``: because of what the trial is, so that others need not fail too."""

    reason: str
    is_its_own: bool


class Worker:
    """Trains the trials of a study in folders below ``workdir``."""

    def __init__(self, study: SharedStudy, workdir: Path, train: Train) -> None:
        self._study, self._workdir, self._train = study, workdir, train
        self._preference = CompiledFirst(study)
        # Trials whose folders another process is using, and until when to leave them alone.
        self._busy: dict[int, float] = {}

    def work(self) -> None:
        """Trains what is left, and what others leave by dying; returns when all trials have ended.

        Raises KeyboardInterrupt when it is stopped, with its trial saved and offered anew; ConfigError when trial after trial
        fails for reasons that are not its own.
        """
        failures = 0
        while True:
            try:
                for number in self._study.take_over_orphans():
                    say(f"trial {number}: its worker fell silent; it goes on from its last checkpoint, if that is here")
                trial = self._study.claim(self._preference.ranks(), self._busy_now())
                is_over_now = trial is None and all(is_over(each) for each in self._study.trials())
            except UNREACHABLE as error:
                self._wait_for_study(error)
                continue
            if is_over_now:
                return
            if trial is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                continue
            failure = self._run(trial)
            failures = failures + 1 if failure and not failure.is_its_own else 0
            if failure and failures == FAILURES_IN_A_ROW:
                raise ConfigError(f"{failures} trials in a row failed, the last with: {failure.reason}")

    def _busy_now(self) -> set[int]:
        return {number for number, until in self._busy.items() if time.monotonic() < until}

    def _run(self, trial: Trial) -> Failure | None:
        """Trains one trial; why it failed, None where it did not."""
        number = number_of(trial)
        folder = folder_of(self._workdir, number)
        with alive(trial, self._study.grace_seconds) as lost:
            try:
                point = self._study.point(trial)
                say(f"trial {number}: {describe(point)}")
                config = self._study.sweep.settings(point)
                self._preference.note(config)
                outcome = self._train(config, folder, judge=self._judge(trial, lost, folder))
            except KeyboardInterrupt:
                self._patiently(lambda: self._study.put_back(trial))
                raise
            except RunIsBusy as error:
                # Its worker was silent, not dead.
                say(str(error))
                self._busy[number] = time.monotonic() + self._study.grace_seconds
                self._patiently(lambda: self._study.put_back(trial))
                return None
            # Whatever ends one trial, a loss that is no number or memory that runs out, need not end the others.
            except Exception as error:
                traceback.print_exc()
                return self._fail(trial, f"{type(error).__name__}: {error}", _is_its_own(error))
        return self._conclude(trial, folder, outcome)

    def _conclude(self, trial: Trial, folder: Path, outcome: "Outcome") -> Failure | None:
        study = self._study
        if outcome.reason == "interrupted":
            self._patiently(lambda: study.put_back(trial))
            raise KeyboardInterrupt
        found = validations(RunDirectory(folder).metrics)
        values = {step: each[study.sweep.metric] for step, each in found.items() if study.sweep.metric in each}
        if not values:
            failure = self._fail(trial, f"no validation found a finite {study.sweep.metric}", is_its_own=True)
        else:
            step, value = best_of(values, study.sweep.direction)
            state = TrialState.PRUNED if outcome.reason == "judged" else TrialState.COMPLETE
            remarks: dict[str, Any] = {"step": step, "folder": str(folder), "found": found[step]}
            remarks["minutes"] = minutes_spent(RunDirectory(folder).goodput)
            self._patiently(lambda: study.finish(trial, state, value, **remarks))
            failure = None
        if outcome.is_asked_to_stop:
            raise KeyboardInterrupt
        return failure

    def _fail(self, trial: Trial, reason: str, is_its_own: bool) -> Failure:
        # Of a message of many lines, which compilers write, the first says enough.
        short = reason.strip().split("\n")[0][:200]
        self._patiently(lambda: self._study.finish(trial, TrialState.FAIL, error=short))
        return Failure(short, is_its_own)

    def _judge(self, trial: Trial, lost: Event, folder: Path) -> "Judge":
        """Tells the study what validations find; ends the trial where it is behind the others, or another worker's by now."""
        metric = self._study.sweep.metric
        earlier = validations(RunDirectory(folder).metrics)
        to_report = {step: each[metric] for step, each in earlier.items() if metric in each}

        def judge(step: int, found: Mapping[str, float]) -> bool:
            # What the attempts before found is told again: this may be another entry of the study.
            to_report[step] = found[metric]
            try:
                while to_report and not lost.is_set():
                    first = min(to_report)
                    trial.report(to_report[first], first)
                    del to_report[first]
                return lost.is_set() or bool(trial.should_prune())
            except UNREACHABLE as error:
                say(f"the study cannot be reached: {error}")
                return lost.is_set()

        return judge

    def _patiently(self, tell: Callable[[], None]) -> None:
        """Tells the study something that must not be lost, again and again for some graces while it cannot be reached."""
        for _ in range(30):
            try:
                return tell()
            except UNREACHABLE as error:
                self._wait_for_study(error)
        return tell()

    def _wait_for_study(self, error: Exception) -> None:
        say(f"the study cannot be reached: {error}")
        time.sleep(self._study.grace_seconds / BEATS_A_GRACE)


def _is_its_own(error: Exception) -> bool:
    """Whether others need not fail in the same way: a rate that was too high, settings that exclude each other."""
    return isinstance(error, ConfigError) or type(error).__name__ == "TrainingDiverged"


def describe(point: Mapping[str, object]) -> str:
    """What a trial is, in a line."""
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in point.items()
    )


def say(message: str) -> None:
    """Into the worker's own log."""
    print(message, file=sys.stderr)
