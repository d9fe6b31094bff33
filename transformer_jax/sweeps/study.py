"""The account of a sweep that its workers share: which trials there are, who trains which, what they found.

All trials are written down before the first begins, those of a sampler empty. A worker claims one, which the storage lets one
worker do, and says again and again that it lives. What a worker that fell silent was training is failed, which the storage
again lets one worker do, and written down once more with the same settings and the same folder, where its checkpoints are.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from transformer_jax.config import ConfigError
from transformer_jax.sweeps.definition import Sweep
from transformer_jax.sweeps.ranges import Choice, Integers, LogUniform, Range, Value
from transformer_jax.sweeps.samplers import make_pruner, make_sampler

DEFINITION, PLANNED = "definition", "planned"
# What a trial carries: which it is (its number, or for one that goes on that of the first attempt), and when it last lived.
NUMBER, ALIVE, ERROR = "number", "alive", "error"
SECONDS_TO_PLAN = 60.0


def number_of(trial: Trial | FrozenTrial) -> int:
    """Which trial it is: all attempts at one have the number of the first."""
    return trial.user_attrs.get(NUMBER, trial.number)


def given_point(trial: FrozenTrial) -> dict[str, Value]:
    """What the trial is, as far as that was chosen."""
    return dict(trial.params) or dict(trial.system_attrs.get("fixed_params", {}))


class SharedStudy:
    """The study of a sweep; ``grace_seconds``: for so long a worker may be silent before its trial is another's."""

    def __init__(self, sweep: Sweep, storage: BaseStorage, name: str, grace_seconds: float = 120.0) -> None:
        self.sweep, self.storage, self.name = sweep, storage, name
        self.grace_seconds = grace_seconds
        self.study = self._join()
        self._study_id = storage.get_study_id_from_name(name)

    def trials(self) -> list[FrozenTrial]:
        """Of every trial, in the order of their numbers, the attempt that came to its end, else the newest."""
        attempts = sorted(self.study.get_trials(deepcopy=False), key=lambda trial: (_is_done(trial), trial.number))
        last = {number_of(trial): trial for trial in attempts}
        return [last[number] for number in sorted(last)]

    def claim(self, rank: Callable[[FrozenTrial], int] = number_of) -> Trial | None:
        """Of the trials that nobody trains yet the first by ``rank``, now this worker's; None when there is none."""
        waiting_trials = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        for waiting in sorted(waiting_trials, key=lambda trial: (rank(trial), trial.number)):
            if self._set_state(waiting, TrialState.RUNNING):
                return Trial(self.study, self._id(waiting))
        return None

    def point(self, trial: Trial) -> dict[str, Value]:
        """What the trial is to be: given beforehand, as in the attempt before, or chosen now."""
        return {name: suggest(trial, name, values) for name, values in self.sweep.axes().items()}

    @contextmanager
    def alive(self, trial: Trial) -> Iterator[threading.Event]:
        """Says that the trial is being trained, until the end; the event is set once another worker took it for dead."""
        over, lost = threading.Event(), threading.Event()

        def tell() -> None:
            while not over.wait(self.grace_seconds / 6) and not lost.is_set():
                try:
                    trial.set_user_attr(ALIVE, time.time())
                except UpdateFinishedTrialError:
                    lost.set()
                # A server that does not answer now may answer next time, within the grace.
                except Exception as error:
                    print(f"the study cannot be reached ({error}); trying again", file=sys.stderr)

        trial.set_user_attr(ALIVE, time.time())
        thread = threading.Thread(target=tell, name="alive", daemon=True)
        thread.start()
        try:
            yield lost
        finally:
            over.set()
            thread.join()

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
            if time.time() - _last_alive(trial) <= self.grace_seconds:
                continue
            # Failed without a reason, long ago: whoever failed it died before offering it anew.
            is_lost = trial.state == TrialState.FAIL and ERROR not in trial.user_attrs
            if is_lost or (trial.state == TrialState.RUNNING and self._set_state(trial, TrialState.FAIL)):
                self._offer_again(trial)
                taken.append(number_of(trial))
        return taken

    def retry_failed(self) -> None:
        """Offers anew what failed, from its last checkpoint."""
        for trial in self.trials():
            if trial.state == TrialState.FAIL:
                self._offer_again(trial)

    def _id(self, trial: Trial | FrozenTrial) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self._study_id, trial.number)

    def _set_state(self, trial: Trial | FrozenTrial, state: TrialState, value: float | None = None) -> bool:
        """Whether the trial is in this state now because of this call: of several workers one can claim or fail it."""
        try:
            return self.storage.set_trial_state_values(self._id(trial), state, None if value is None else [value])
        except UpdateFinishedTrialError:
            return False

    def _offer_again(self, trial: FrozenTrial) -> None:
        """The same trial once more, to be claimed."""
        again = optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            intermediate_values=trial.intermediate_values,
            user_attrs={NUMBER: number_of(trial)},
            system_attrs=trial.system_attrs,
        )
        self.study.add_trial(again)

    def _join(self) -> optuna.Study:
        """The study, created and planned by whoever comes first.

        Raises ConfigError when there is one of this name that is another sweep.
        """
        sampler, pruner = make_sampler(self.sweep), make_pruner(self.sweep)
        try:
            study = optuna.create_study(
                storage=self.storage,
                study_name=self.name,
                direction=self.sweep.direction,
                sampler=sampler,
                pruner=pruner,
            )
        except DuplicatedStudyError:
            study = optuna.load_study(storage=self.storage, study_name=self.name, sampler=sampler, pruner=pruner)
            _await_plan(study)
        if PLANNED not in study.user_attrs:
            self._plan(study)
        self._require_same(study.user_attrs[DEFINITION])
        return study

    def _plan(self, study: optuna.Study) -> None:
        """Writes down what of all trials is not written down yet, then that all are."""
        study.set_user_attr(DEFINITION, definition(self.sweep))
        points = self.sweep.points()
        for point in points[len(study.get_trials(deepcopy=False)) :]:
            study.enqueue_trial(point)
        study.set_user_attr(PLANNED, len(points))

    def _require_same(self, there: str) -> None:
        ours = definition(self.sweep)
        if there != ours:
            before, now = json.loads(there), json.loads(ours)
            changed = next(key for key in now if before.get(key) != now[key])
            raise ConfigError(
                f"--sweep: the study {self.name!r} was begun with {changed} {json.dumps(before.get(changed))}, and now it is "
                f"{json.dumps(now[changed])}; use another --workdir (or --study) for another sweep"
            )


def definition(sweep: Sweep) -> str:
    """JSON of all that makes the sweep what it is."""
    return json.dumps(
        {
            "config": sweep.config,
            # Where the data lie is each machine's own affair.
            "overrides": {key: value for key, value in sweep.overrides.items() if not key.endswith("directory")},
            "rows": {name: dict(row) for name, row in sweep.rows.items()},
            "axes": {name: repr(each) for name, each in sweep.axes().items()},
            "metric": sweep.metric,
            "sampler": sweep.sampler,
            "pruner": sweep.pruner,
            "trials": sweep.trials,
        },
        ensure_ascii=False,
    )


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


def _await_plan(study: optuna.Study) -> None:
    """Waits while another worker writes down the trials; returns anyway after a time, for it may have died over it."""
    deadline = time.monotonic() + SECONDS_TO_PLAN
    while PLANNED not in study.user_attrs and time.monotonic() < deadline:
        time.sleep(0.1)


def _is_done(trial: FrozenTrial) -> bool:
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def _last_alive(trial: FrozenTrial) -> float:
    """When anybody last did anything with the trial, in seconds since 1970."""
    began, ended = (
        0.0 if each is None else each.timestamp() for each in (trial.datetime_start, trial.datetime_complete)
    )
    return max(trial.user_attrs.get(ALIVE, began), ended)
