"""Plots of a study, drawn by Optuna: optimization history, parallel coordinates, importance of the settings."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from transformer_jax.tools.sweeps.definition import Choice, Integers, LogUniform, Range, Sweep
from transformer_jax.tools.sweeps.study import TrialRow


def draw_study(sweep: Sweep, trials: Sequence[TrialRow], folder: Path) -> list[Path]:
    """Draws history.png, and parallel_coordinates.png and importance.png if trials differ; returns the paths.

    Importance is PED-ANOVA's (Watanabe et al. 2023): how much the better trials differ from the others in a setting.
    """
    study = _drawable_study(sweep, trials)
    done = [trial for trial in trials if trial.state == "complete"]
    if not done:
        return []
    varied = sorted({name for trial in done for name, value in trial.point.items() if value != done[0].point.get(name)})
    # pyplot must not look for a screen.
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.collections import LineCollection
    from optuna.visualization import matplotlib as drawing

    def parallel_coordinates(study: optuna.Study, params: list[str], target_name: str) -> Any:
        axes = drawing.plot_parallel_coordinate(study, params=params, target_name=target_name)
        # Optuna truncates long names, draws the worst trial white, and clips lines at the frame.
        axes.set_xticklabels([target_name, *params], rotation=330, ha="left")
        for lines in (each for each in axes.collections if isinstance(each, LineCollection)):
            lines.set_cmap("viridis" if sweep.direction == "minimize" else "viridis_r")
            lines.set_clip_on(False)
        return axes

    # Optuna sets a global style.
    with matplotlib.rc_context():
        drawn = [_write(folder / "history.png", drawing.plot_optimization_history, study, target_name=sweep.metric)]
        if varied and len({trial.value for trial in done}) > 1:
            plots: dict[str, Callable[..., Any]] = {
                "parallel_coordinates.png": parallel_coordinates,
                "importance.png": drawing.plot_param_importances,
            }
            for name, plot in plots.items():
                drawn.append(_write(folder / name, plot, study, params=varied, target_name=sweep.metric))
    return [file for file in drawn if file is not None]


def _drawable_study(sweep: Sweep, trials: Sequence[TrialRow]) -> optuna.Study:
    """A study in memory with each trial once, at its number; the points of a grid are its parameters."""
    seen = {name: list(dict.fromkeys(t.point[name] for t in trials if name in t.point)) for name in sweep.axes()}
    study = optuna.create_study(direction=sweep.direction)
    for trial in trials:
        if not trial.has_value:
            # Later trials keep their numbers.
            study.add_trial(optuna.create_trial(state=TrialState.FAIL))
            continue
        study.add_trial(
            optuna.create_trial(
                state=TrialState.COMPLETE if trial.state == "complete" else TrialState.PRUNED,
                value=trial.value,
                params=dict(trial.point),
                distributions={
                    name: CategoricalDistribution(seen[name]) if sweep.is_grid else _distribution(sweep.space[name])
                    for name in trial.point
                },
            )
        )
    return study


def _distribution(values: Range) -> BaseDistribution:
    if isinstance(values, Choice):
        return CategoricalDistribution(values.values)
    if isinstance(values, Integers):
        return IntDistribution(values.low, values.high, step=values.step)
    return FloatDistribution(values.low, values.high, log=isinstance(values, LogUniform))


def _write(path: Path, draw: Callable[..., Any], study: optuna.Study, **options: Any) -> Path | None:
    """Draws and writes a plot; returns its path, or None if there are too few trials."""
    from matplotlib import pyplot

    with warnings.catch_warnings():
        # Optuna warns that these functions are experimental.
        warnings.simplefilter("ignore")
        try:
            axes = draw(study, **options)
        except (ValueError, RuntimeError):
            return None
        axes.figure.set_size_inches(10, 5.5)
        axes.figure.savefig(path, dpi=120, bbox_inches="tight")
        pyplot.close("all")
    return path
