"""The account of a sweep that its workers share: which trials there are, who trains which, what they found.

All trials are written down before the first begins, those of a sampler empty. A worker claims one, which the storage lets one
worker do, and says again and again that it lives. What a worker that fell silent was training is failed, which the storage
again lets one worker do, and written down once more with the same settings and the same folder, where its checkpoints are.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from transformer_jax.sweeps.definition import Sweep
from transformer_jax.sweeps.planning import NUMBER, await_plan, plan, require_same
from transformer_jax.sweeps.ranges import Choice, Integers, LogUniform, Range, Value
from transformer_jax.sweeps.samplers import make_pruner, make_sampler

# What a trial carries: when its worker last said that it lives, why it failed, and that there was an attempt before this one.
ALIVE, ERROR, OFFERED_AGAIN = "alive", "error", "offered_again"


def number_of(trial: Trial | FrozenTrial) -> int:
    """Number of the trial: all attempts at one have the same."""
    return trial.user_attrs.get(NUMBER, trial.number)


def given_point(trial: FrozenTrial) -> dict[str, Value]:
    """Settings of the trial, as far as they were chosen."""
    return dict(trial.params) or dict(trial.system_attrs.get("fixed_params", {}))


def was_begun(trial: FrozenTrial) -> bool:
    """Whether a worker had it before, who put it back or died."""
    return ALIVE in trial.user_attrs or OFFERED_AGAIN in trial.user_attrs


def is_done(trial: FrozenTrial) -> bool:
    """Whether it has ended; FAIL without an error means that the worker died before re-enqueueing it."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def is_over(trial: FrozenTrial) -> bool:
    """Whether nobody needs to train it any more."""
    return is_done(trial) or (trial.state == TrialState.FAIL and ERROR in trial.user_attrs)


class SharedStudy:
    """The study of a sweep; ``grace_seconds``: for so long a worker may be silent before its trial is another's.

    Raises ConfigError when there is a study of this name that is another sweep.
    """

    def __init__(self, sweep: Sweep, storage: BaseStorage, name: str, grace_seconds: float = 120.0) -> None:
        self.sweep, self.storage, self.name = sweep, storage, name
        self.grace_seconds = grace_seconds
        self._sampler, self._pruner = make_sampler(sweep), make_pruner(sweep)
        self.study = self._join()
        self._study_id = storage.get_study_id_from_name(name)
        # What each running trial's worker said last, and when this worker first saw that, by its own clock.
        self._heard: dict[int, tuple[object, float]] = {}

    def trials(self) -> list[FrozenTrial]:
        """Of every trial, in the order of their numbers, the attempt that came to its end, else the newest."""
        attempts = sorted(self.study.get_trials(deepcopy=False), key=lambda trial: (is_done(trial), trial.number))
        last = {number_of(trial): trial for trial in attempts}
        return [last[number] for number in sorted(last)]

    def claim(self, rank: Callable[[FrozenTrial], int] = number_of, but: Collection[int] = frozenset()) -> Trial | None:
        """Of the trials that nobody trains yet the first by ``rank``, now this worker's; None when there is none.

        Not those whose numbers are in ``but``.
        """
        newest = [trial for trial in self.trials() if trial.state == TrialState.WAITING and number_of(trial) not in but]
        for waiting in sorted(newest, key=lambda trial: (rank(trial), number_of(trial))):
            # A claimed trial must never look as if its worker had long been silent.
            if self._say_alive(waiting) and self._set_state(waiting, TrialState.RUNNING):
                # A sampler looks at the study as it was when it was opened.
                self.study = self._opened()
                return Trial(self.study, self._id(waiting))
        return None

    def point(self, trial: Trial) -> dict[str, Value]:
        """Settings of the trial: those enqueued with it, as for a later attempt, or those chosen now.

        What is listed is no parameter to Optuna, who would hold the first list against a sweep that has grown.
        """
        if self.sweep.is_listed:
            return given_point(self.storage.get_trial(self._id(trial)))
        return {name: suggest(trial, name, values) for name, values in self.sweep.axes().items()}

    def finish(self, trial: Trial, state: TrialState, value: float | None = None, **remarks: Any) -> None:
        """Writes down how the trial ended; nothing if another worker took it for dead meanwhile."""
        try:
            for name, remark in remarks.items():
                trial.set_user_attr(name, remark)
            self._set_state(trial, state, value)
        except UpdateFinishedTrialError:
            pass

    def put_back(self, trial: Trial) -> None:
        """Leaves the trial, which this worker began, to whoever comes next."""
        self.finish(trial, TrialState.WAITING)

    def take_over_orphans(self) -> list[int]:
        """Offers anew what workers were training that have fallen silent; the numbers of those trials."""
        taken = []
        for trial in self.trials():
            is_lost = trial.state == TrialState.FAIL and not is_over(trial)
            if trial.state != TrialState.RUNNING and not is_lost:
                self._heard.pop(trial.number, None)
            elif self._is_silent(trial) and (is_lost or self._set_state(trial, TrialState.FAIL)):
                self._offer_again(trial)
                taken.append(number_of(trial))
        return taken

    def retry_failed(self) -> None:
        """Offers anew what failed, from its last checkpoint."""
        for trial in self.trials():
            if trial.state == TrialState.FAIL:
                self._offer_again(trial)

    def _is_silent(self, trial: FrozenTrial) -> bool:
        """Whether nothing was heard of the trial for the whole grace; clocks of different machines are never compared."""
        said = trial.state, trial.user_attrs.get(ALIVE)
        before, since = self._heard.get(trial.number, (None, 0.0))
        if said != before:
            self._heard[trial.number] = said, time.monotonic()
            return False
        return time.monotonic() - since > self.grace_seconds

    def _say_alive(self, trial: Trial | FrozenTrial) -> bool:
        try:
            self.storage.set_trial_user_attr(self._id(trial), ALIVE, time.time())
        except UpdateFinishedTrialError:
            return False
        return True

    def _id(self, trial: Trial | FrozenTrial) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self._study_id, trial.number)

    def _set_state(self, trial: Trial | FrozenTrial, state: TrialState, value: float | None = None) -> bool:
        """Whether the trial is in this state now because of this call: of several workers one can claim or fail it."""
        try:
            return self.storage.set_trial_state_values(self._id(trial), state, None if value is None else [value])
        except UpdateFinishedTrialError:
            return False

    def _offer_again(self, trial: FrozenTrial) -> None:
        """The same trial once more, to be claimed. What it reported is in its folder, as far as that is kept."""
        again = optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={NUMBER: number_of(trial), OFFERED_AGAIN: True},
            system_attrs=trial.system_attrs,
        )
        self.study.add_trial(again)

    def _join(self) -> optuna.Study:
        """The study, created and planned by whoever comes first; what this sweep has more than it had is added."""
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
