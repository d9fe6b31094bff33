"""The study that the workers of a sweep share: its trials, the worker that trains each, and their results.

All trials are enqueued before the first begins, those of a sampler empty. A worker claims a trial, which the storage lets only
one worker do, and sends heartbeats. A trial whose heartbeats stopped is marked as failed, which again the storage lets only one
worker do, and enqueued again with the same settings and the same folder, which holds its checkpoints.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from transformer_jax.tools.sweeps.definition import Sweep
from transformer_jax.tools.sweeps.planning import NUMBER, await_plan, plan, require_same
from transformer_jax.tools.sweeps.ranges import Choice, Integers, LogUniform, Range, Value
from transformer_jax.tools.sweeps.samplers import make_pruner, make_sampler

# User attributes of a trial: the time of its last heartbeat, why it failed, and that there was an attempt before this one.
HEARTBEAT, ERROR, IS_RETRY = "alive", "error", "offered_again"


def number_of(trial: Trial | FrozenTrial) -> int:
    """Number of the trial: all attempts at one have the same."""
    return trial.user_attrs.get(NUMBER, trial.number)


def given_point(trial: FrozenTrial) -> dict[str, Value]:
    """Settings of the trial, as far as they were chosen."""
    return dict(trial.params) or dict(trial.system_attrs.get("fixed_params", {}))


def was_begun(trial: FrozenTrial) -> bool:
    """Whether a worker claimed it before, and put it back or died."""
    return HEARTBEAT in trial.user_attrs or IS_RETRY in trial.user_attrs


def is_done(trial: FrozenTrial) -> bool:
    """Whether it has ended; FAIL without an error means that the worker died before re-enqueueing it."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def is_over(trial: FrozenTrial) -> bool:
    """Whether it needs no more training."""
    return is_done(trial) or (trial.state == TrialState.FAIL and ERROR in trial.user_attrs)


class SharedStudy:
    """The study of a sweep; after ``grace_seconds`` without a heartbeat a worker counts as dead.

    Raises ConfigError when the study of this name belongs to another sweep.
    """

    def __init__(self, sweep: Sweep, storage: BaseStorage, name: str, grace_seconds: float = 120.0) -> None:
        self.sweep, self.storage, self.name = sweep, storage, name
        self.grace_seconds = grace_seconds
        self._sampler, self._pruner = make_sampler(sweep), make_pruner(sweep)
        self.study = self._join()
        self._study_id = storage.get_study_id_from_name(name)
        # The last heartbeat of each running trial, and when this worker first saw it, by its own clock.
        self._heartbeats: dict[int, tuple[object, float]] = {}

    def trials(self) -> list[FrozenTrial]:
        """For every trial, by number, the attempt that ended, else the newest."""
        attempts = sorted(self.study.get_trials(deepcopy=False), key=lambda trial: (is_done(trial), trial.number))
        last = {number_of(trial): trial for trial in attempts}
        return [last[number] for number in sorted(last)]

    def claim(self, rank: Callable[[FrozenTrial], int] = number_of, but: Collection[int] = frozenset()) -> Trial | None:
        """Claims the first waiting trial by ``rank``, except the numbers in ``but``; returns None when there is none."""
        newest = [trial for trial in self.trials() if trial.state == TrialState.WAITING and number_of(trial) not in but]
        for waiting in sorted(newest, key=lambda trial: (rank(trial), number_of(trial))):
            # A claimed trial must never look stale.
            if self._send_heartbeat(waiting) and self._set_state(waiting, TrialState.RUNNING):
                # A sampler looks at the study as it was when it was opened.
                self.study = self._opened()
                return Trial(self.study, self._id(waiting))
        return None

    def point(self, trial: Trial) -> dict[str, Value]:
        """Settings of the trial: those enqueued with it, as for a later attempt, or those chosen now.

        Listed values are not parameters for Optuna, which would reject a list that has grown.
        """
        if self.sweep.is_listed:
            return given_point(self.storage.get_trial(self._id(trial)))
        return {name: suggest(trial, name, values) for name, values in self.sweep.axes().items()}

    def finish(self, trial: Trial, state: TrialState, value: float | None = None, **remarks: Any) -> None:
        """Records how the trial ended, unless another worker has marked it as failed meanwhile."""
        try:
            for name, remark in remarks.items():
                trial.set_user_attr(name, remark)
            self._set_state(trial, state, value)
        except UpdateFinishedTrialError:
            pass

    def put_back(self, trial: Trial) -> None:
        """Returns a claimed trial to the queue."""
        self.finish(trial, TrialState.WAITING)

    def enqueue_stale_again(self) -> list[int]:
        """Enqueues again the trials whose worker stopped sending heartbeats; returns their numbers."""
        taken = []
        for trial in self.trials():
            is_lost = trial.state == TrialState.FAIL and not is_over(trial)
            if trial.state != TrialState.RUNNING and not is_lost:
                self._heartbeats.pop(trial.number, None)
            elif self._is_stale(trial) and (is_lost or self._set_state(trial, TrialState.FAIL)):
                self._enqueue_again(trial)
                taken.append(number_of(trial))
        return taken

    def retry_failed(self) -> None:
        """Enqueues failed trials again, to resume from their last checkpoints."""
        for trial in self.trials():
            if trial.state == TrialState.FAIL:
                self._enqueue_again(trial)

    def _is_stale(self, trial: FrozenTrial) -> bool:
        """Whether there was no heartbeat for ``grace_seconds``; clocks of different machines are never compared."""
        beat = trial.state, trial.user_attrs.get(HEARTBEAT)
        before, since = self._heartbeats.get(trial.number, (None, 0.0))
        if beat != before:
            self._heartbeats[trial.number] = beat, time.monotonic()
            return False
        return time.monotonic() - since > self.grace_seconds

    def _send_heartbeat(self, trial: Trial | FrozenTrial) -> bool:
        try:
            self.storage.set_trial_user_attr(self._id(trial), HEARTBEAT, time.time())
        except UpdateFinishedTrialError:
            return False
        return True

    def _id(self, trial: Trial | FrozenTrial) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self._study_id, trial.number)

    def _set_state(self, trial: Trial | FrozenTrial, state: TrialState, value: float | None = None) -> bool:
        """Whether this call set the state: only one of several workers can claim or fail a trial."""
        try:
            return self.storage.set_trial_state_values(self._id(trial), state, None if value is None else [value])
        except UpdateFinishedTrialError:
            return False

    def _enqueue_again(self, trial: FrozenTrial) -> None:
        """Enqueues another attempt at the trial; the values that it reported are in its folder."""
        again = optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={NUMBER: number_of(trial), IS_RETRY: True},
            system_attrs=trial.system_attrs,
        )
        self.study.add_trial(again)

    def _join(self) -> optuna.Study:
        """The study, created by the first worker; trials that the sweep has gained since are added."""
        try:
            optuna.create_study(storage=self.storage, study_name=self.name, direction=self.sweep.direction)
        except DuplicatedStudyError:
            await_plan(self._opened())
        study = self._opened()
        require_same(study, self.sweep)
        plan(study, self.sweep)
        return study

    def _opened(self) -> optuna.Study:
        return optuna.load_study(storage=self.storage, study_name=self.name, sampler=self._sampler, pruner=self._pruner)


def suggest(trial: Trial, name: str, values: Range) -> Value:
    """A value of the range, as Optuna chooses it."""
    if isinstance(values, Choice):
        chosen = trial.suggest_categorical(name, values.values)
        return next(value for value in values.values if value == chosen)
    if isinstance(values, Integers):
        return trial.suggest_int(name, values.low, values.high, step=values.step)
    return trial.suggest_float(name, values.low, values.high, log=isinstance(values, LogUniform))


def best_of(values: Mapping[int, float], direction: str) -> tuple[int, float]:
    """The update with the best value, the earliest of several, and that value."""
    sign = 1 if direction == "maximize" else -1
    step = max(values, key=lambda step: (sign * values[step], -step))
    return step, values[step]
