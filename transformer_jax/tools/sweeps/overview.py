"""Overview of a sweep: a row for each trial with its settings, state and best validation."""

from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from transformer_jax.tools.sweeps.ranges import Value
from transformer_jax.tools.sweeps.study import ERROR, SharedStudy, best_of, given_point, is_done, number_of

STATES = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class TrialRow(NamedTuple):
    """One trial. ``value`` is the best of its validations so far, ``step`` the update of that; None before the first."""

    number: int
    state: str
    value: float | None
    step: int | None
    point: dict[str, Value]
    minutes: float | None
    folder: str
    error: str
    found: dict[str, float]


def rows(study: SharedStudy) -> list[TrialRow]:
    """All trials, by number."""
    return [_row(trial, study.sweep.direction) for trial in study.trials()]


def ranked(trials: list[TrialRow], direction: str) -> list[TrialRow]:
    """The trials that ended, the best first."""
    done = [trial for trial in trials if trial.state in ("complete", "pruned") and trial.value is not None]
    return sorted(done, key=lambda trial: trial.value or 0.0, reverse=direction == "maximize")


def _row(trial: FrozenTrial, direction: str) -> TrialRow:
    step, value = best_of(trial.intermediate_values, direction) if trial.intermediate_values else (None, None)
    if is_done(trial):
        step, value = trial.user_attrs["step"], trial.value
    duration = None if trial.duration is None else trial.duration.total_seconds() / 60
    return TrialRow(
        number_of(trial),
        STATES[trial.state],
        value,
        step,
        given_point(trial),
        trial.user_attrs.get("minutes", duration),
        trial.user_attrs.get("folder", ""),
        trial.user_attrs.get(ERROR, ""),
        trial.user_attrs.get("found", {}),
    )
