"""One worker of a sweep: claims trials and trains them until all have ended."""

import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from transformer_jax.checkpoints.run_directory import RunDirectory, RunIsBusy
from transformer_jax.config import ConfigError
from transformer_jax.sweeps.heartbeat import BEATS_A_GRACE, alive
from transformer_jax.sweeps.scheduler import Claimed, Scheduler
from transformer_jax.sweeps.storage import UNREACHABLE
from transformer_jax.sweeps.study import SharedStudy, best_of, is_over
from transformer_jax.sweeps.trial_folder import minutes_spent, validations

if TYPE_CHECKING:
    from transformer_jax.runs.record import ShouldStop

SECONDS_BETWEEN_LOOKS = 1.0
FAILURES_IN_A_ROW = 3

Train = Callable[..., Any]
"""``train(configs, workdirs, should_stops, on_end=on_end)``: trains in the folders, or resumes there, all at once.

``on_end(place, ending)`` is called when one has ended. Raises KeyboardInterrupt, once it was
called for all, when a signal asked to stop;
``train_vectorized`` is one.
"""

Ending = Any
"""An Outcome, or the exception that ended a run."""


class NothingFound(RuntimeError):
    """A run ended without a value of the metric."""


class Worker:
    """Trains the trials of a study in folders below ``workdir``, up to ``vectorize`` of them at a time."""

    def __init__(self, study: SharedStudy, workdir: Path, train: Train, vectorize: int = 1) -> None:
        self._study, self._train = study, train
        self._scheduler = Scheduler(study, workdir, vectorize)
        self._failures_in_a_row = 0

    def work(self) -> None:
        """Trains what is left, and what others leave by dying; returns when all trials have ended.

        Raises KeyboardInterrupt when it is stopped, with its trials saved and offered anew; ConfigError when trial after trial
        fails for reasons that are not its own.
        """
        while True:
            try:
                for number in self._study.take_over_orphans():
                    say(
                        f"trial {number}: its worker stopped responding; it resumes from its last checkpoint, if that is here"
                    )
                claimed = self._scheduler.take(self._fail)
                is_over_now = not claimed and all(is_over(each) for each in self._study.trials())
            except UNREACHABLE as error:
                self._wait_for_study(error)
                continue
            if is_over_now:
                return
            if claimed:
                self._run(claimed)
            else:
                time.sleep(SECONDS_BETWEEN_LOOKS)

    def _run(self, claimed: Sequence[Claimed]) -> None:
        """Trains these to their ends."""
        left = dict(enumerate(claimed))
        try:
            self._train_all(left)
        except KeyboardInterrupt:
            self._put_back(left.values())
            raise
        except RunIsBusy as error:
            say(str(error))
            for each in left.values():
                if each.folder == error.folder:
                    self._scheduler.leave_for_now(each.number)
            self._put_back(left.values())
        # Whatever ends one trial, a loss that is no number or memory that runs out, need not end the others.
        except Exception as error:
            traceback.print_exc()
            if len(claimed) == 1 and left:
                self._fail(claimed[0].trial, error)
            elif left:
                self._try_otherwise(len(claimed), left.values(), error)

    def _train_all(self, left: dict[int, Claimed]) -> None:
        """Trains what is in ``left``, by its place, and removes what has ended and is reported."""
        claimed = list(left.values())
        with ExitStack() as beating:
            beats = [beating.enter_context(ExitStack()) for _ in claimed]
            should_stops = []
            for each, beat in zip(claimed, beats, strict=True):
                lost = beat.enter_context(alive(each.trial, self._study.grace_seconds))
                say(f"trial {each.number}: {describe(self._study.point(each.trial))}")
                should_stops.append(self._should_stop(each, lost))

            def on_end(place: int, ending: Ending) -> None:
                self._settle(left[place], ending)
                del left[place]
                beats[place].close()

            self._train(
                [each.config for each in claimed], [each.folder for each in claimed], should_stops, on_end=on_end
            )

    def _try_otherwise(self, together: int, left: Collection[Claimed], error: Exception) -> None:
        """Leaves for later what is left of so many trials that did not go ``together``."""
        if _is_lack_of_memory(error):
            say(f"{together} trials do not fit together; from now on half as many")
            self._scheduler.take_fewer(than=together)
        else:
            say(f"{together} trials could not train together; those that are left are tried alone")
            self._scheduler.take_alone(each.number for each in left)
        self._put_back(left)

    def _put_back(self, claimed: Iterable[Claimed]) -> None:
        for each in claimed:
            self._patiently(partial(self._study.put_back, each.trial))

    def _settle(self, claimed: Claimed, ending: Ending) -> None:
        """Reports to the study what became of a trial."""
        study, trial = self._study, claimed.trial
        if isinstance(ending, Exception):
            self._fail(trial, ending)
            return
        if ending.reason == "interrupted":
            self._patiently(lambda: study.put_back(trial))
            return
        run = RunDirectory(claimed.folder)
        found = validations(run.metrics)
        values = {step: each[study.sweep.metric] for step, each in found.items() if study.sweep.metric in each}
        if not values:
            self._fail(trial, NothingFound(f"no validation found a finite {study.sweep.metric}"))
            return
        step, value = best_of(values, study.sweep.direction)
        state = TrialState.PRUNED if ending.reason == "stopped" else TrialState.COMPLETE
        remarks: dict[str, Any] = {"step": step, "folder": str(claimed.folder), "found": found[step]}
        remarks["minutes"] = minutes_spent(run.goodput)
        self._patiently(lambda: study.finish(trial, state, value, **remarks))
        self._failures_in_a_row = 0

    def _fail(self, trial: Trial, error: Exception) -> None:
        """Raises ConfigError when too many failed one after another, of what others must fail of too."""
        # Of a message of many lines, which compilers write, the first says enough.
        reason = f"{type(error).__name__}: {error}".strip().split("\n")[0][:200]
        self._patiently(lambda: self._study.finish(trial, TrialState.FAIL, error=reason))
        self._failures_in_a_row = 0 if _is_its_own(error) else self._failures_in_a_row + 1
        if self._failures_in_a_row == FAILURES_IN_A_ROW:
            raise ConfigError(f"{FAILURES_IN_A_ROW} trials in a row failed, the last with: {reason}")

    def _should_stop(self, claimed: Claimed, lost: Event) -> "ShouldStop":
        """Reports validations to the study; ends the trial where it is behind the others, or another worker's by now."""
        metric, trial = self._study.sweep.metric, claimed.trial
        earlier = validations(RunDirectory(claimed.folder).metrics)
        to_report = {step: each[metric] for step, each in earlier.items() if metric in each}

        def should_stop(step: int, found: Mapping[str, float]) -> bool:
            # What the attempts before found is reported again: this may be another entry of the study.
            to_report[step] = found[metric]
            try:
                while to_report and not lost.is_set():
                    first = min(to_report)
                    trial.report(to_report[first], first)
                    del to_report[first]
                return lost.is_set() or bool(trial.should_prune())
            except UpdateFinishedTrialError:
                return True
            except UNREACHABLE as error:
                say(f"the study cannot be reached: {error}")
                return lost.is_set()

        return should_stop

    def _patiently(self, report: Callable[[], None]) -> None:
        """Reports something that must not be lost, again and again for some graces while the study cannot be reached."""
        for _ in range(30):
            try:
                return report()
            except UNREACHABLE as error:
                self._wait_for_study(error)
        return report()

    def _wait_for_study(self, error: Exception) -> None:
        say(f"the study cannot be reached: {error}")
        time.sleep(self._study.grace_seconds / BEATS_A_GRACE)


def _is_its_own(error: Exception) -> bool:
    """Whether others need not fail in the same way: a rate that was too high, settings that exclude each other."""
    return isinstance(error, ConfigError | NothingFound) or type(error).__name__ == "TrainingDiverged"


def _is_lack_of_memory(error: Exception) -> bool:
    """Whether fewer trials at a time may do: XLA's errors are known by their text."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def describe(point: Mapping[str, object]) -> str:
    """Describes a trial in one line."""
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in point.items()
    )


def say(message: str) -> None:
    """Into the worker's own log."""
    print(message, file=sys.stderr)
