"""One worker of a sweep: claims trials and trains them, one after another, until all have ended."""

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from optuna.trial import Trial, TrialState

from transformer_jax.config import ConfigError
from transformer_jax.run_directory import RunDirectory, RunIsBusy
from transformer_jax.sweeps.compiled_first import CompiledFirst
from transformer_jax.sweeps.study import SharedStudy, best_of, number_of
from transformer_jax.sweeps.trial_folder import folder_of, validations

if TYPE_CHECKING:
    from transformer_jax.loop import Judge, Outcome

SECONDS_BETWEEN_LOOKS = 1.0
FAILURES_IN_A_ROW = 3


Train = Callable[..., Any]
"""``train(config, workdir, judge=judge) -> Outcome``: trains in the folder, or goes on there; ``run_training`` is one."""


def work(study: SharedStudy, workdir: Path, train: Train) -> None:
    """Trains what is left, and what others leave by dying; returns when all trials have ended.

    Raises KeyboardInterrupt when it is stopped, with its trial saved and offered anew; ConfigError when trial after trial
    fails.
    """
    failures: list[str] = []
    preference = CompiledFirst(study)
    while True:
        for number in study.take_over_orphans():
            print(f"trial {number}: its worker fell silent; it goes on from its last checkpoint", file=sys.stderr)
        trial = study.claim(preference.ranks())
        if trial is not None:
            error = _run(study, trial, workdir, train, preference)
            failures = [*failures, error] if error else []
            if len(failures) == FAILURES_IN_A_ROW:
                raise ConfigError(f"{len(failures)} trials in a row failed, the last with: {error}")
        elif any(not each.state.is_finished() for each in study.trials()):
            time.sleep(SECONDS_BETWEEN_LOOKS)
        else:
            return


def _run(study: SharedStudy, trial: Trial, workdir: Path, train: Train, preference: CompiledFirst) -> str:
    """Trains one trial; why it failed, empty where it did not."""
    number = number_of(trial)
    folder = folder_of(workdir, number)
    with study.alive(trial) as lost:
        try:
            point = study.point(trial)
            print(f"trial {number}: {describe(point)}", file=sys.stderr)
            config = study.sweep.settings(point)
            preference.note(config)
            outcome = train(config, folder, judge=_judge(study, trial, lost))
        except KeyboardInterrupt:
            study.put_back(trial)
            raise
        except RunIsBusy as error:
            # Its worker was silent, not dead.
            print(error, file=sys.stderr)
            time.sleep(study.grace_seconds / 6)
            study.put_back(trial)
            return ""
        # Whatever ends one trial, a loss that is no number or memory that runs out, need not end the others.
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
            study.finish(trial, TrialState.FAIL, error=reason)
            return reason
    return _conclude(study, trial, folder, outcome)


def _conclude(study: SharedStudy, trial: Trial, folder: Path, outcome: "Outcome") -> str:
    if outcome.reason == "interrupted":
        study.put_back(trial)
        raise KeyboardInterrupt
    found = validations(RunDirectory(folder).metrics)
    values = {step: each[study.sweep.metric] for step, each in found.items() if study.sweep.metric in each}
    if not values:
        reason = f"{study.sweep.metric} was never reported; training.evaluate_every is more than the updates it made"
        study.finish(trial, TrialState.FAIL, error=reason)
        return reason
    step, value = best_of(values, study.sweep.direction)
    state = TrialState.PRUNED if outcome.reason == "judged" else TrialState.COMPLETE
    study.finish(trial, state, value, step=step, updates=outcome.step, folder=str(folder), found=found[step])
    return ""


def _judge(study: SharedStudy, trial: Trial, lost: Event) -> "Judge":
    """Tells the study what a validation found; ends the trial where it is behind the others, or another worker's by now."""
    # The attempt before this one may have gone further than its last checkpoint.
    reported = set(study.study.trials[trial.number].intermediate_values)

    def judge(step: int, found: Mapping[str, float]) -> bool:
        if lost.is_set():
            return True
        if step not in reported:
            trial.report(found[study.sweep.metric], step)
        return bool(trial.should_prune())

    return judge


def describe(point: Mapping[str, object]) -> str:
    """What a trial is, in a line."""
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in point.items()
    )
