"""Plots of a study: the score of each trial in order, and against each setting, with the importance of the setting."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.sweeps.definition import Choice, Integers, LogUniform, Range, Sweep
from transformer_jax.tools.sweeps.study import TrialRow


def draw_study(sweep: Sweep, trials: Sequence[TrialRow], folder: Path) -> list[Path]:
    """Draws history.png, and settings.png if complete trials differ; returns the paths.

    Importance is PED-ANOVA's (Watanabe et al. 2023): how much the better trials differ from the others in a setting.
    """
    done = [trial for trial in trials if trial.state == "complete" and trial.has_value]
    if not done:
        return []
    numbers, values = np.array([each.number for each in done]), np.array([each.value for each in done])
    best = (np.minimum if sweep.direction == "minimize" else np.maximum).accumulate(values)
    # Steps: the best score holds until the next trial that is better.
    steps = np.repeat(numbers, 2)[1:], np.repeat(best, 2)[:-1]
    history = {"trial": (numbers, values), "best so far": steps}
    panel = LinePanel("Trials in order", history, "trial", sweep.metric, dotted=("best so far",), marks="o")
    drawn = [draw_panels([panel], folder / "history.png")]
    varied = sorted({name for each in done for name, value in each.point.items() if value != done[0].point.get(name)})
    if varied and len(set(values)) > 1:
        panels = [_slice(sweep, done, *each) for each in importances(sweep, done, varied).items()]
        drawn.append(draw_panels(panels, folder / "settings.png", title="Score against each setting"))
    return drawn


def _slice(sweep: Sweep, done: Sequence[TrialRow], name: str, importance: float | None) -> LinePanel:
    """The trials against one setting; values to choose from are categories."""
    points = sorted((each.point[name], each.value) for each in done if name in each.point)
    is_chosen = sweep.is_grid or isinstance(sweep.space[name], Choice)
    values = np.array([str(value) if is_chosen else value for value, _ in points])
    return LinePanel(
        name if importance is None else f"{name}: importance {importance:.2f}",
        {"_": (values, np.array([score for _, score in points]))},
        "",
        sweep.metric,
        x_scale="linear" if is_chosen or not isinstance(sweep.space[name], LogUniform) else "log",
        marks="o",
    )


def importances(sweep: Sweep, done: Sequence[TrialRow], varied: Sequence[str]) -> dict[str, float | None]:
    """The importance of each setting, the largest first; None where there are too few trials."""
    seen = {name: list(dict.fromkeys(each.point[name] for each in done if name in each.point)) for name in sweep.axes()}
    study = optuna.create_study(direction=sweep.direction)
    for each in done:
        distributions = {
            name: CategoricalDistribution(seen[name]) if sweep.is_grid else _distribution(sweep.space[name])
            for name in each.point
        }
        study.add_trial(optuna.create_trial(value=each.value, params=dict(each.point), distributions=distributions))
    with warnings.catch_warnings():
        # Optuna warns that this is experimental.
        warnings.simplefilter("ignore")
        try:
            found = optuna.importance.get_param_importances(study, params=list(varied))
        except (ValueError, RuntimeError):
            return dict.fromkeys(varied)
    return dict(found)


def _distribution(values: Range) -> BaseDistribution:
    if isinstance(values, Choice):
        return CategoricalDistribution(values.values)
    if isinstance(values, Integers):
        return IntDistribution(values.low, values.high, step=values.step)
    return FloatDistribution(values.low, values.high, log=isinstance(values, LogUniform))
