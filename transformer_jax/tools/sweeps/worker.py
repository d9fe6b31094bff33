"""One worker of a sweep: claims trials and trains them until all have ended."""

import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NoReturn

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from transformer_jax.checkpoints.save_failure import SaveFailed, is_disk_full
from transformer_jax.config import ConfigError, DataError
from transformer_jax.runs.run_directory import RunDirectory, RunIsBusy
from transformer_jax.tools.sweeps.heartbeat import HEARTBEATS_PER_GRACE, heartbeat
from transformer_jax.tools.sweeps.scheduler import Claimed, Scheduler
from transformer_jax.tools.sweeps.storage import UNREACHABLE, StudyLost, study_lost, unreachable
from transformer_jax.tools.sweeps.study import SharedStudy, best_of, is_over
from transformer_jax.tools.sweeps.trial_folder import minutes_spent, validations

if TYPE_CHECKING:
    from transformer_jax.runs.prepared_run import ShouldStop

POLL_SECONDS = 1.0
FAILURES_IN_A_ROW = 3
ATTEMPTS = 31

Train = Callable[..., Any]
"""``train(configs, workdirs, should_stops, on_end=on_end)``: trains in the folders, or resumes there, all at once.

``on_end(place, outcome)`` is called for each run that ends. Raises KeyboardInterrupt when a signal asked to stop, after
calling it for all. ``train_vectorized`` is one.
"""

RunEnd = Any
"""An Outcome, or the exception that ended a run."""


class NoMetricValue(RuntimeError):
    """A run ended without a value of the metric."""


class Worker:
    """Trains the trials of a study in folders below ``workdir``, up to ``vectorize`` of them at a time."""

    def __init__(self, study: SharedStudy, workdir: Path, train: Train, vectorize: int = 1) -> None:
        self._study, self._train = study, train
        self._scheduler = Scheduler(study, workdir, vectorize)
        self._failures_in_a_row = 0

    def work(self) -> None:
        """Trains the remaining trials, and those of workers that died; returns when all trials have ended.

        Raises KeyboardInterrupt when it is stopped, with its trials saved and enqueued again; ConfigError when several trials
        in a row fail for reasons that may be common to all.
        """
        while True:
            try:
                for number in self._study.enqueue_stale_again():
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
                time.sleep(POLL_SECONDS)

    def _run(self, claimed: Sequence[Claimed]) -> None:
        """Trains these trials until they end."""
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
        except StudyLost:
            # Nothing of this trial could be reported either.
            raise
        # A failure of one trial, such as a non-finite loss or lack of memory, need not end the others.
        except Exception as error:
            if isinstance(error, SaveFailed) or is_disk_full(error):
                self._end_at_full_disk(left.values(), error)
            if isinstance(error, ConfigError | DataError):
                say(f"{type(error).__name__}: {error}")
            else:
                traceback.print_exc()
            if len(claimed) == 1 and left:
                self._fail(claimed[0].trial, error)
            elif left:
                self._retry_apart(len(claimed), left.values(), error)

    def _end_at_full_disk(self, claimed: Iterable[Claimed], error: Exception) -> NoReturn:
        """Raises ConfigError: the next trial would end so, too. A trial that cannot be put back now goes stale, and then is."""
        for each in claimed:
            with suppress(*UNREACHABLE):
                self._study.put_back(each.trial)
        raise ConfigError(str(error)) from None

    def _train_all(self, left: dict[int, Claimed]) -> None:
        """Trains the trials in ``left``, by place, and removes those that ended and were reported."""
        claimed = list(left.values())
        with ExitStack() as beating:
            beats = [beating.enter_context(ExitStack()) for _ in claimed]
            should_stops = []
            for each, beat in zip(claimed, beats, strict=True):
                lost = beat.enter_context(heartbeat(each.trial, self._study.grace_seconds))
                say(f"trial {each.number}: {describe(self._study.point(each.trial))}")
                should_stops.append(self._should_stop(each, lost))

            def on_end(place: int, outcome: RunEnd) -> None:
                self._settle(left[place], outcome)
                del left[place]
                beats[place].close()

            self._train(
                [each.config for each in claimed], [each.folder for each in claimed], should_stops, on_end=on_end
            )

    def _retry_apart(self, count: int, left: Collection[Claimed], error: Exception) -> None:
        """Puts back what is left of ``count`` trials that failed as one program, to be trained in smaller groups."""
        if _is_out_of_memory(error):
            say(f"{count} trials do not fit into memory as one program; from now on at most half as many")
            self._scheduler.take_fewer(than=count)
        else:
            say(f"{count} trials could not train as one program; those that are left are trained one at a time")
            self._scheduler.take_alone(each.number for each in left)
        self._put_back(left)

    def _put_back(self, claimed: Iterable[Claimed]) -> None:
        for each in claimed:
            self._retrying(partial(self._study.put_back, each.trial))

    def _settle(self, claimed: Claimed, outcome: RunEnd) -> None:
        """Reports the outcome of a trial to the study."""
        study, trial = self._study, claimed.trial
        if isinstance(outcome, Exception):
            self._fail(trial, outcome)
            return
        if outcome.reason == "interrupted":
            self._retrying(lambda: study.put_back(trial))
            return
        run = RunDirectory(claimed.folder)
        found = validations(run.metrics)
        values = {step: each[study.sweep.metric] for step, each in found.items() if study.sweep.metric in each}
        if not values:
            self._fail(trial, NoMetricValue(f"no validation found a finite {study.sweep.metric}"))
            return
        step, value = best_of(values, study.sweep.direction)
        state = TrialState.PRUNED if outcome.reason == "stopped" else TrialState.COMPLETE
        remarks: dict[str, Any] = {"step": step, "folder": str(claimed.folder), "found": found[step]}
        remarks["minutes"] = minutes_spent(run.goodput)
        self._retrying(lambda: study.finish(trial, state, value, **remarks))
        self._failures_in_a_row = 0

    def _fail(self, trial: Trial, error: Exception) -> None:
        """Reports a failed trial; raises ConfigError after several failures in a row that may be common to all trials."""
        # Compilers write messages of many lines; the first is enough.
        reason = f"{type(error).__name__}: {error}".strip().split("\n")[0][:200]
        self._retrying(lambda: self._study.finish(trial, TrialState.FAIL, error=reason))
        self._failures_in_a_row = 0 if _is_specific_to_trial(error) else self._failures_in_a_row + 1
        if self._failures_in_a_row == FAILURES_IN_A_ROW:
            raise ConfigError(f"{FAILURES_IN_A_ROW} trials in a row failed, the last with: {reason}")

    def _should_stop(self, claimed: Claimed, lost: Event) -> "ShouldStop":
        """Reports validations to the study; stops a trial that is pruned, or that another worker has claimed."""
        metric, trial = self._study.sweep.metric, claimed.trial
        earlier = validations(RunDirectory(claimed.folder).metrics)
        to_report = {step: each[metric] for step, each in earlier.items() if metric in each}

        def should_stop(step: int, found: Mapping[str, float]) -> bool:
            # The values of earlier attempts are reported again: this may be another entry of the study.
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
                say(unreachable(self._study.storage, error))
                return lost.is_set()

        return should_stop

    def _retrying(self, report: Callable[[], None]) -> None:
        """Retries a report that must not be lost while the study cannot be reached; raises StudyLost in the end."""
        for _ in range(ATTEMPTS):
            try:
                return report()
            except UNREACHABLE as error:
                lost = study_lost(self._study.storage, error)
                self._wait_for_study(error)
        raise lost

    def _wait_for_study(self, error: Exception) -> None:
        say(unreachable(self._study.storage, error))
        time.sleep(self._study.grace_seconds / HEARTBEATS_PER_GRACE)


def _is_specific_to_trial(error: Exception) -> bool:
    """Whether the failure is specific to its trial: a rate that was too high, settings that exclude each other."""
    return isinstance(error, ConfigError | NoMetricValue) or type(error).__name__ == "TrainingDiverged"


def _is_out_of_memory(error: Exception) -> bool:
    """Whether fewer trials at a time may succeed; XLA's errors are recognized by their text."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def describe(point: Mapping[str, object]) -> str:
    """Describes a trial in one line."""
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in point.items()
    )


def say(message: str) -> None:
    """Prints to the log of the worker."""
    print(message, file=sys.stderr)
