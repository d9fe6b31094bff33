"""The results of a duel: its runs, the noise floor of the base, and the tests of each idea."""

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from transformer_jax.config import Metric
from transformer_jax.runs.goodput import TRAINING
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tools.duel.contenders import BASE
from transformer_jax.tools.duel.plan import Plan, Planned, tuning_row
from transformer_jax.tools.duel.statistics import (
    MOST_SEEDS,
    PairedTest,
    detectable,
    holm,
    paired_test,
    seeds_needed,
    verdict,
)
from transformer_jax.tools.sweeps.definition import ROW, SEED
from transformer_jax.tools.sweeps.study import TrialRow
from transformer_jax.tools.sweeps.worker import validations

LOSS = "validation/loss"


class FinishedRun(NamedTuple):
    """A run that ended: its validations by update, and the ``error`` of one that failed; ``seconds`` of an update."""

    seed: int
    folder: str
    error: str
    validations: Mapping[int, Mapping[str, float]]
    seconds: float | None

    def final(self, key: str) -> float:
        """The last validation of a run without an error."""
        return self.validations[max(self.validations)][key]


class Result(NamedTuple):
    """A contender and its runs that ended; of an idea the tests against the base, on the metric and on the loss.

    ``adjusted``: p of both by Holm over all ideas. ``effect``: the mean difference of the metric over the noise floor.
    ``reached``: updates at which the mean loss reaches the final one of the base; None if it does not.
    ``is_loss_comparable``: whether the idea leaves what the loss measures; otherwise the loss has no test.
    """

    planned: Planned
    runs: Sequence[FinishedRun]
    tests: tuple[PairedTest | None, PairedTest | None] = (None, None)
    adjusted: tuple[float, float] = (1.0, 1.0)
    effect: float | None = None
    reached: float | None = None
    verdict: str = ""
    is_loss_comparable: bool = True

    @property
    def name(self) -> str:
        return self.planned.contender.name

    @property
    def size(self) -> int:
        return self.planned.contender.size

    @property
    def is_base(self) -> bool:
        return self.planned.contender.idea == BASE

    @property
    def sound(self) -> dict[int, FinishedRun]:
        """The runs that did not fail, by seed."""
        return {run.seed: run for run in self.runs if not run.error}

    @property
    def failures(self) -> int:
        return len(self.runs) - len(self.sound)

    @property
    def seconds(self) -> float | None:
        """Mean seconds of an update."""
        found = [run.seconds for run in self.sound.values() if run.seconds is not None]
        return fmean(found) if found else None

    def finals(self, key: str) -> list[float]:
        return [run.final(key) for run in self.sound.values()]

    def differences(self, base: "Result", key: str) -> list[float]:
        """Of the final values, seed by seed."""
        seeds = sorted(self.sound.keys() & base.sound.keys())
        return [self.sound[seed].final(key) - base.sound[seed].final(key) for seed in seeds]

    def curve(self, key: str) -> dict[int, list[float]]:
        """The values of all sound runs by update."""
        runs = list(self.sound.values())
        steps = sorted(set.intersection(*(set(run.validations) for run in runs))) if runs else []
        return {step: [run.validations[step][key] for run in runs] for step in steps}


def finished_run(trial: TrialRow, keys: Sequence[str]) -> FinishedRun:
    """A trial that ended; one without a finite value of each of ``keys`` at its end failed."""
    run = RunDirectory(trial.folder)
    found = validations(run.metrics) if trial.folder and run.metrics.is_file() else {}
    is_measured = bool(found) and all(key in found[max(found)] for key in keys)
    error = trial.error or ("" if is_measured and trial.state == "complete" else "no finite value at its end")
    seconds = None
    if found and run.goodput.is_file():
        spent = json.loads(run.goodput.read_text(encoding="utf-8"))["seconds"]
        seconds = sum(spent[kind] for kind in TRAINING) / max(found)
    complete = {step: values for step, values in found.items() if all(key in values for key in keys)}
    return FinishedRun(int(trial.point[SEED]), trial.folder, error, complete, seconds)


def results_of(plan: Plan, metric: Metric, trials: Sequence[TrialRow]) -> list[Result]:
    """The results of all contenders of the folder that have a run, size by size, the base before its ideas."""
    keys = metric.key, LOSS
    runs: dict[str, list[FinishedRun]] = {name: [] for name in plan.planned}
    # Another command may have planned more.
    ended = [each for each in trials if each.has_ended and each.point.get(ROW) in runs]
    for trial in sorted(ended, key=lambda each: int(each.point[SEED])):
        runs[str(trial.point[ROW])].append(finished_run(trial, keys))
    loss = _loss_of(plan)
    found = [
        Result(each, runs[name], is_loss_comparable=not loss.changed_by(each.contender.settings))
        for name, each in plan.planned.items()
        if runs[name]
    ]
    bases = {each.size: each for each in found if each.is_base}
    ideas = [each for each in found if not each.is_base and each.size in bases]
    tests = [
        (
            paired_test(each.differences(bases[each.size], metric.key)),
            paired_test(each.differences(bases[each.size], LOSS)) if each.is_loss_comparable else None,
        )
        for each in ideas
    ]
    # An idea without a test, or without an ended run, counts among the tests too.
    waiting = [1.0] * (sum(each.contender.idea != BASE for each in plan.planned.values()) - len(ideas))
    by_key = [holm([test.p if test else 1.0 for test in column] + waiting) for column in zip(*tests, strict=True)]
    judged = list(bases.values())
    for each, (first, second), p in zip(ideas, tests, zip(*by_key, strict=True), strict=False):
        judged.append(_judged(each._replace(tests=(first, second), adjusted=(p[0], p[1])), bases[each.size], metric))
    reached = [each._replace(reached=_reached(each, bases[each.size])) for each in judged]
    return sorted(reached, key=lambda each: (each.size, not each.is_base))


def _loss_of(plan: Plan) -> Metric:
    """The loss of the task of the recipe."""
    base = next(each.contender for each in plan.planned.values() if each.contender.idea == BASE)
    return next((each for each in plan.config_of(base).metrics if each.key == LOSS), Metric("loss", "minimize"))


def _judged(idea: Result, base: Result, metric: Metric) -> Result:
    test, finals = idea.tests[0], base.finals(metric.key)
    floor = stdev(finals) if len(finals) > 1 else 0.0
    failed = [
        f"{each.failures} of {len(each.runs)} runs of {each.name} failed" for each in (idea, base) if each.failures
    ]
    sign = 1 if metric.direction == "maximize" else -1
    words = verdict(test, idea.adjusted[0], sign, metric.label, metric.digits, " and ".join(failed))
    return idea._replace(effect=test.mean / floor if test and floor else None, verdict=words)


def _reached(result: Result, base: Result) -> float | None:
    """By linear interpolation between validations of the mean over seeds."""
    finals = base.finals(LOSS)
    if not finals or not result.is_loss_comparable:
        return None
    target, before = fmean(finals), (0, math.inf)
    for step, losses in result.curve(LOSS).items():
        mean = fmean(losses)
        if mean <= target:
            first, above = before
            return step if above == math.inf else first + (step - first) * (above - target) / (above - mean)
        before = step, mean
    return None


def tuned_values(
    plan: Plan, names: Sequence[str], metric: Metric, trials: Sequence[TrialRow]
) -> dict[str, dict[str, float]]:
    """The metric of each value of the grid, by contender; a run that failed has the worst."""
    worst = -math.inf if metric.direction == "maximize" else math.inf
    runs = {trial.point[ROW]: finished_run(trial, (metric.key,)) for trial in trials if trial.has_ended}
    scores = {row: worst if run.error else run.final(metric.key) for row, run in runs.items()}
    return {
        name: {value: scores.get(tuning_row(name, value), worst) for value in plan.planned[name].grid} for name in names
    }


def power_statement(results: Sequence[Result], seeds: int, ideas: int, metric: Metric, effect: float) -> str:
    """The differences that ``seeds`` seeds, or more that have run, can find, and the seeds that ``effect`` needs (0: the noise
    floor).

    The deviation of differences is the root mean square over the ideas tested so far; before, the value for independent runs.
    The noise floor is the root mean square over the sizes.
    """
    # A test uses all seeds that an idea has in the folder.
    seeds = max(seeds, min((len(each.runs) for each in results if not each.is_base), default=0))
    finals = [found for each in results if each.is_base and len(found := each.finals(metric.key)) > 1]
    if not finals:
        return "Power: the noise floor is not known yet; it is measured from the base's runs, before the ideas are trained."
    floor = math.sqrt(fmean(stdev(each) ** 2 for each in finals))
    found = [each.tests[0].deviation for each in results if each.tests[0] and each.tests[0].deviation]
    deviation = math.sqrt(fmean(value**2 for value in found)) if found else math.sqrt(2) * floor
    if not deviation:
        return f"Power: the base has the same {metric.label} with all {len(finals[0])} seeds: there is no noise."
    needed = seeds_needed(effect or floor, deviation, ideas)
    wanted = metric.text(effect) if effect else "the noise floor"
    if needed is None:
        seeds_for_it = f"more than {MOST_SEEDS:,} seeds, and this duel has {seeds}"
    elif needed > seeds:
        seeds_for_it = f"{needed} seeds, and this duel has {seeds}; --seeds={needed} would answer it"
    else:
        seeds_for_it = f"{needed} seeds, which this duel has"
    return (
        f"Power: the noise floor is {metric.text(floor)} {metric.label}, the standard deviation of the base over "
        f"{len(finals[0])} seeds. {seeds} seeds and {ideas} {'idea' if ideas == 1 else 'ideas'} find a difference of "
        f"{metric.text(detectable(deviation, seeds, ideas))} with probability 0.8. A difference of {wanted} needs "
        f"{seeds_for_it}."
    )
