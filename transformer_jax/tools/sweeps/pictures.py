"""Plots of a study, drawn by Optuna: optimization history, parallel coordinates, importance of the settings."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.sweeps.study import SharedStudy, given_point, is_done


def draw_study(shared: SharedStudy, folder: Path) -> list[Path]:
    """Draws history.png, parallel_coordinates.png and importance.png where there are enough trials; returns their paths.

    Importance is PED-ANOVA's (Watanabe et al. 2023): how much the better trials differ from the others in a setting.
    """
    study, metric = _by_number(shared), shared.sweep.metric
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    varied = {name for trial in done for name in trial.params if trial.params[name] != done[0].params.get(name)}
    if not done:
        return []
    # Only drawing needs it, and its pyplot must not look for a screen.
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.ticker import MaxNLocator
    from optuna.visualization import matplotlib as drawing

    def history(study: optuna.Study, **options: Any) -> Any:
        axes = drawing.plot_optimization_history(study, **options)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return axes

    # Optuna chooses a style for whatever this process draws from then on.
    with matplotlib.rc_context():
        drawn = [_write(folder / "history.png", history, study, target_name=metric)]
        if varied and len(done) > 1:
            options = {"params": sorted(varied), "target_name": metric}
            plots: dict[str, Callable[..., Any]] = {
                "parallel_coordinates.png": drawing.plot_parallel_coordinate,
                "importance.png": drawing.plot_param_importances,
            }
            equal = _equal_values(done, metric)
            drawn += [
                _words(folder / name, equal) if equal else _write(folder / name, plot, study, **options)
                for name, plot in plots.items()
            ]
    return [file for file in drawn if file is not None]


def _by_number(shared: SharedStudy) -> optuna.Study:
    """A copy of the study for the plots: each trial once, at its number, with listed settings as parameters too."""
    trials = shared.trials()
    points = [given_point(trial) for trial in trials]
    seen = {name: list(dict.fromkeys(point[name] for point in points if name in point)) for name in shared.sweep.axes()}
    study = optuna.create_study(direction=shared.sweep.direction)
    for trial, point in zip(trials, points, strict=True):
        if not is_done(trial):
            # A placeholder, so that later trials keep their numbers.
            study.add_trial(optuna.create_trial(state=TrialState.FAIL))
            continue
        listed: dict[str, BaseDistribution] = {name: CategoricalDistribution(seen[name]) for name in point}
        distributions = listed if shared.sweep.is_listed else trial.distributions
        study.add_trial(
            optuna.create_trial(state=trial.state, value=trial.value, params=point, distributions=distributions)
        )
    return study


def _write(path: Path, draw: Callable[..., Any], study: optuna.Study, **options: Any) -> Path | None:
    """Path of the plot; None where there are too few trials for it."""
    from matplotlib import pyplot

    with warnings.catch_warnings():
        # Optuna calls these functions experimental.
        warnings.simplefilter("ignore")
        try:
            axes = draw(study, **options)
        except (ValueError, RuntimeError):
            return None
        _in_house_style(axes.figure)
        axes.figure.set_size_inches(10, 5.5)
        axes.figure.savefig(path, dpi=120, bbox_inches="tight")
        pyplot.close("all")
    return path


def _in_house_style(figure: Any) -> None:
    """The fonts, colors and frame of the other plots, for one that Optuna drew."""
    figure.set_facecolor("white")
    is_alone = len(figure.axes) == 1
    for axes in figure.axes:
        axes.set_facecolor("white")
        title = axes.get_title() or axes.get_title(loc="left")
        axes.set_title("")
        axes.set_title(title, loc="left", fontproperties=canvas.font(11, weight="bold"), color=canvas.INK)
        shown = {side: spine.get_visible() for side, spine in axes.spines.items()}
        canvas.style_axes(axes, axes.get_xlabel(), axes.get_ylabel())
        axes.grid(visible=is_alone)
        for side, spine in axes.spines.items():
            # Of several axes each has its scale on a side of its own.
            spine.set_visible(spine.get_visible() if is_alone else shown[side])
        if axes.get_legend():
            axes.legend(prop=canvas.font(8), frameon=False, labelcolor=canvas.INK, loc="best")


def _equal_values(done: Sequence[FrozenTrial], metric: str) -> str:
    """A sentence where all trials have one value, of which nothing can be said; else empty."""
    values = {trial.value for trial in done}
    return f"all values equal: {len(done)} trials have {metric} = {done[0].value:g}" if len(values) == 1 else ""


def _words(path: Path, text: str) -> Path:
    """A picture that says why there is nothing to draw."""
    figure = canvas.blank_figure(8, 1.2)
    canvas.add_title(figure, text, 11)
    return canvas.write_png(figure, path)
