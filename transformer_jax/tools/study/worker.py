"""A worker of a sweep trains the trials that Optuna hands out, until all have ended."""

import math
import sys
import time
import traceback
from collections.abc import Container, Mapping
from pathlib import Path

import optuna
from optuna.exceptions import TrialPruned, UpdateFinishedTrialError
from optuna.storages import fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from transformer_jax.checkpoints.save_failure import SaveFailed, is_disk_full
from transformer_jax.config import ConfigError, DataError, to_dict
from transformer_jax.errors import StoreError
from transformer_jax.run_directory.layout import RunDirectory, RunIsBusy
from transformer_jax.runs.goodput import read_goodput
from transformer_jax.runs.hooks import Callback
from transformer_jax.runs.run import TrainingDiverged
from transformer_jax.runs.train_run import settings_to_train, train_run
from transformer_jax.tools.study.optuna_study import (
    ERROR,
    POINT,
    POLL_SECONDS,
    SURPLUS,
    UNREACHABLE,
    answered,
    first_line,
    has_free_point,
    is_of,
    points_of,
    retry,
    trials_of,
)
from transformer_jax.tools.study.run_summary import validations
from transformer_jax.tools.study.sweeps import Choice, Integers, LogUniform, Range, Sweep, Value

FAILURES_IN_A_ROW = 3
# Another process trains the trial.
BUSY = (RunIsBusy,)
# The state of a trial cannot be saved.
UNSAVED = SaveFailed, StoreError


class NoMetricValue(RuntimeError):
    """A run ended without a value of the metric."""


class _Unanswered(BaseException):
    """The database did not respond. Optuna does not catch it, so the trial does not fail."""


def work(study: optuna.Study, sweep: Sweep, workdir: str | Path, grace_seconds: float) -> None:
    """Train the remaining trials, and trials of dead workers, until all have ended.

    ``workdir`` is a folder or an address, and trials have folders in it. A worker is dead after
    ``grace_seconds`` without a heartbeat.

    Raises:
        KeyboardInterrupt: after a signal to stop, with the trial saved and enqueued again.
        ConfigError: if the disk is full, an object store refuses, the study cannot be reached for
            ten minutes, or ``FAILURES_IN_A_ROW`` trials fail for reasons that others may share.
    """
    failures, is_lost = 0, False
    stopped: KeyboardInterrupt | None = None

    def is_taken(trial: Trial) -> bool:
        """Return whether another worker took the trial, because heartbeats did not arrive."""
        return _frozen(study, trial).state != TrialState.RUNNING

    def objective(trial: Trial) -> float:
        try:
            return attempt(trial)
        except UNREACHABLE as error:
            raise _Unanswered from error

    def attempt(trial: Trial) -> float:
        nonlocal is_lost, stopped
        try:
            value = _train(study, sweep, workdir, trial)
            is_lost = is_taken(trial)
            return value
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt):
                stopped = error
            is_lost = is_taken(trial)
            if isinstance(error, (KeyboardInterrupt, *BUSY, *UNSAVED)) or is_disk_full(error):
                if not is_lost:
                    retry(study, _frozen(study, trial))
            elif not is_lost and not isinstance(error, TrialPruned):
                trial.set_user_attr(ERROR, first_line(error))
            raise

    while _await_trial(study, sweep):
        is_lost = False
        try:
            study.optimize(objective, n_trials=1)
            failures = 0
        except (*UNREACHABLE, _Unanswered) as error:
            if stopped:
                raise stopped from None
            problem = first_line(error.__cause__ or error)
            print(
                f"the study did not respond: {problem}; the trial resumes after {grace_seconds:.0f} s", file=sys.stderr
            )
        except BUSY as error:
            print(error, file=sys.stderr)
            time.sleep(grace_seconds)
        except Exception as error:
            if stopped:
                # If another worker took the trial, Optuna replaces the interrupt by its error.
                raise stopped from None
            if is_lost:
                print("the heartbeats did not arrive, and another worker took the trial", file=sys.stderr)
                continue
            if isinstance(error, UNSAVED) or is_disk_full(error):
                raise ConfigError(str(error)) from None
            if isinstance(error, ConfigError | DataError | TrainingDiverged | NoMetricValue):
                print(first_line(error), file=sys.stderr)
            else:
                traceback.print_exc()
            # These concern one trial: a learning rate that is too high, contradictory settings.
            is_of_one_trial = isinstance(error, ConfigError | TrainingDiverged | NoMetricValue)
            failures = 0 if is_of_one_trial else failures + 1
            if failures == FAILURES_IN_A_ROW:
                raise ConfigError(f"{failures} trials in a row failed, the last with", first_line(error)) from None


def _await_trial(study: optuna.Study, sweep: Sweep) -> bool:
    """Wait until a trial can be started or resumed. Return False if all have ended."""
    while True:
        answered(lambda: fail_stale_trials(study))
        trials = answered(lambda: trials_of(study))
        states = {attempts[-1].state for attempts in trials if is_of(sweep, attempts[-1])}
        if TrialState.WAITING in states or has_free_point(sweep, trials):
            return True
        if TrialState.RUNNING not in states:
            return False
        time.sleep(POLL_SECONDS)


def _train(study: optuna.Study, sweep: Sweep, workdir: str | Path, trial: Trial) -> float:
    """Train or resume a trial and return its value, NaN if other workers took all points."""
    trials = trials_of(study)
    number = next(
        number for number, attempts in enumerate(trials) if any(trial.number == attempt.number for attempt in attempts)
    )
    point = points_of(sweep, trials)[number]
    if point is None:
        trial.set_user_attr(SURPLUS, True)
        return math.nan
    if not sweep.is_grid:
        point = {name: _suggest(trial, name, values) for name, values in sweep.space.items()}
    trial.set_user_attr(POINT, point)
    folder = f"{workdir}/trials/{number:04d}"
    trial.set_user_attr("folder", folder)
    print(f"trial {number}: {', '.join(f'{name}={value}' for name, value in point.items())}", file=sys.stderr)
    reporter = _Reporter(trial, sweep.metric_key, _frozen(study, trial).intermediate_values)
    run = RunDirectory(folder)
    config, _ = settings_to_train(to_dict(sweep.settings(point)), (), str(run.path))
    outcome = train_run(config, run.path, [reporter], is_trial=True)
    if outcome.reason == "interrupted":
        raise KeyboardInterrupt(outcome.signal)
    metrics = validations(run.metrics)
    values = {step: record[sweep.metric_key] for step, record in metrics.items() if sweep.metric_key in record}
    if not values:
        raise NoMetricValue(f"no validation has a finite {sweep.metric_key}")
    step = sweep.measured.best_step(values)
    trial.set_user_attr("step", step)
    trial.set_user_attr("found", metrics[step])
    if spent := read_goodput(run.goodput):
        trial.set_user_attr("minutes", sum(spent["seconds"].values()) / 60)
    if outcome.reason == "stopped":
        raise TrialPruned
    return values[step]


class _Reporter(Callback):
    """Reports validations to the study. A pruned trial, or one that another worker took, ends."""

    def __init__(self, trial: Trial, metric: str, reported: Container[int]) -> None:
        self._trial, self._metric, self._reported = trial, metric, reported

    def on_validation(self, step: int, metrics: Mapping[str, float]) -> bool:
        try:
            if step not in self._reported:
                self._trial.report(metrics[self._metric], step)
            return self._trial.should_prune()
        except UpdateFinishedTrialError:
            return True
        except UNREACHABLE as error:
            print(f"not reported: {first_line(error)}", file=sys.stderr)
            return False


def _suggest(trial: Trial, name: str, values: Range) -> Value:
    if isinstance(values, Choice):
        value = trial.suggest_categorical(name, values.values)
        assert value is not None
        return value
    if isinstance(values, Integers):
        return trial.suggest_int(name, values.low, values.high, step=values.step)
    return trial.suggest_float(name, values.low, values.high, log=isinstance(values, LogUniform))


def _frozen(study: optuna.Study, trial: Trial) -> FrozenTrial:
    return study.get_trials(deepcopy=False)[trial.number]
