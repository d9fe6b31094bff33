"""Leaderboard of a sweep: the trials by metric, means over seeds, and plots of the metric over trials and settings."""

import statistics
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import optuna

from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.reports.document import Document, Picture, Section, Table, to_csv, write_report
from transformer_jax.tools.sweeps.definition import SEED, Choice, LogUniform, Sweep, Value
from transformer_jax.tools.sweeps.study import TrialRow

CAPTIONS = {
    "history": "Metric of the trials, by number",
    "settings": "Metric against each setting; importance, of a search: how better trials differ in it (PED-ANOVA)",
}
WITHOUT_IMPORTANCE = "Grids have no importance of settings (PED-ANOVA): it compares trials that a search has sampled."


def write_leaderboard(sweep: Sweep, trials: Sequence[TrialRow], pictures: Sequence[Path], folder: Path) -> list[Path]:
    """Writes leaderboard.md and .html, and leaderboard.csv with all metrics of every trial; returns their paths."""
    drawn = tuple(Picture(file.name, file.read_bytes(), CAPTIONS[file.stem]) for file in pictures)
    note = [WITHOUT_IMPORTANCE] * sweep.is_grid
    sections = tables(sweep, trials) + ((Section("Pictures", (*drawn, *note)),) if drawn else ())
    document = Document(f"Trials of {sweep.config}", sections)
    return write_report(folder, "leaderboard", document, {"leaderboard.csv": _csv(sweep, trials)})


def tables(sweep: Sweep, trials: Sequence[TrialRow]) -> tuple[Section, ...]:
    """The table of trials, best first, with counts by state, and the table of means over seeds if there are several."""
    states = [trial.state for trial in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    better = "higher is better" if sweep.direction == "maximize" else "lower is better"
    points = sweep.points()
    # Commands with other --rows train other points of a grid.
    others = sum(trial.point not in points for trial in trials) if sweep.is_grid else 0
    total = max(len(trials), len(points) + others)
    text = f"{counts or 'none'} of {total}. Ended trials first, by their best {sweep.metric_key}, {better}."
    sections: tuple[Section, ...] = (Section("Trials", (text, trial_table(sweep, _ordered(sweep, trials)))),)
    if len(sweep.seeds) > 1:
        sections += (Section("Over seeds", (seed_table(sweep, trials),)),)
    return sections


def trial_table(sweep: Sweep, trials: Sequence[TrialRow]) -> Table:
    """A row per trial, in the given order: its settings, and its best validation so far."""
    names = list(sweep.axes())
    headings = ("trial", "state", *names, sweep.metric_key, "update", "minutes", "why it failed")
    rows = tuple(
        (
            str(trial.number),
            trial.state,
            *(shown(trial.point.get(name)) for name in names),
            shown(trial.value),
            shown(trial.step),
            "" if trial.minutes is None else f"{trial.minutes:.1f}",
            trial.error,
        )
        for trial in trials
    )
    if not any(trial.error for trial in trials):
        headings, rows = headings[:-1], tuple(row[:-1] for row in rows)
    return Table(headings, rows, frozenset({1, *range(2, 2 + len(names)), len(names) + 5}))


def seed_table(sweep: Sweep, trials: Sequence[TrialRow]) -> Table:
    """A row per point without its seed, best mean first: mean, minimum and maximum over the seeds whose trials are complete."""
    names = [name for name in sweep.axes() if name != SEED]
    groups: dict[tuple[Value | None, ...], list[float]] = {}
    # Their values are of fewer updates.
    pruned = Counter[tuple[Value | None, ...]]()
    for trial in _ordered(sweep, trials):
        point = tuple(trial.point.get(name) for name in names)
        pruned[point] += trial.state == "pruned"
        if trial.has_value and trial.state == "complete":
            groups.setdefault(point, []).append(trial.value or 0.0)
    order = sorted(groups, key=lambda point: statistics.mean(groups[point]), reverse=sweep.direction == "maximize")
    rows = []
    for point in order:
        found = groups[point]
        numbers = statistics.mean(found), min(found), max(found), len(found)
        rows.append((*map(shown, point), *map(shown, numbers), str(pruned[point])))
    rows += [
        (*map(shown, point), "", "", "", "0", str(count))
        for point, count in pruned.items()
        if point not in groups and count
    ]
    headings = (*names, f"mean {sweep.metric_key}", "minimum", "maximum", "seeds", "pruned")
    return Table(headings, tuple(rows), frozenset(range(len(names))))


def shown(value: Value | None) -> str:
    """A value as text, floats with four significant digits; empty for None."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _ordered(sweep: Sweep, trials: Sequence[TrialRow]) -> list[TrialRow]:
    sign = -1 if sweep.direction == "maximize" else 1
    return sorted(
        trials, key=lambda trial: (not trial.has_value, sign * (trial.value or 0.0) if trial.has_value else 0.0)
    )


def _csv(sweep: Sweep, trials: Sequence[TrialRow]) -> str:
    """Settings in full precision, and all metrics of the best validation of each trial."""
    names = list(sweep.axes())
    found = [key for key in dict.fromkeys(key for trial in trials for key in trial.found) if key != sweep.metric_key]
    rows = [
        [
            *(trial.number, trial.state, *(trial.point.get(name) for name in names), trial.value, trial.step),
            *(*(trial.found.get(key) for key in found), trial.minutes, trial.folder, trial.error),
        ]
        for trial in _ordered(sweep, trials)
    ]
    return to_csv(["trial", "state", *names, sweep.metric_key, "update", *found, "minutes", "folder", "error"], rows)


def draw_study(study: optuna.Study, sweep: Sweep, trials: Sequence[TrialRow], folder: Path) -> list[Path]:
    """Draws history.png, and settings.png if complete trials differ; returns the paths.

    A search also shows the importance of each setting by PED-ANOVA (Watanabe et al. 2023): how much the better trials differ
    from the others in it.
    """
    done = [trial for trial in trials if trial.state == "complete" and trial.has_value]
    if not done:
        return []
    numbers, values = np.array([each.number for each in done]), np.array([each.value for each in done])
    best = (np.minimum if sweep.direction == "minimize" else np.maximum).accumulate(values)
    # Steps: the best score holds until the next trial that is better.
    steps = np.repeat(numbers, 2)[1:], np.repeat(best, 2)[:-1]
    history = {"trial": (numbers, values), "best so far": steps}
    panel = LinePanel("Trials in order", history, "trial", sweep.metric_key, dotted=("best so far",), marks="o")
    drawn = [draw_panels([panel], folder / "history.png")]
    varied = sorted({name for each in done for name, value in each.point.items() if value != done[0].point.get(name)})
    if varied and len(set(values)) > 1:
        found = {} if sweep.is_grid else importances(study, varied)
        panels = [_slice(sweep, done, name, found.get(name)) for name in (found or varied)]
        drawn.append(draw_panels(panels, folder / "settings.png", title="Score against each setting"))
    return drawn


def _slice(sweep: Sweep, done: Sequence[TrialRow], name: str, importance: float | None) -> LinePanel:
    """The trials against one setting; values to choose from are categories."""
    points = sorted((each.point[name], each.value) for each in done if name in each.point)
    is_chosen = sweep.is_grid or isinstance(sweep.space[name], Choice)
    values = np.array([str(value) if is_chosen else value for value, _ in points])
    return LinePanel(
        name if importance is None else f"{name}: importance {importance:.2f}",
        {"trial": (values, np.array([score for _, score in points]))},
        "",
        sweep.metric_key,
        x_scale="linear" if is_chosen or not isinstance(sweep.space[name], LogUniform) else "log",
        marks="o",
        unlisted=("trial",),
    )


def importances(study: optuna.Study, varied: Sequence[str]) -> dict[str, float]:
    """The importance of each setting, the largest first; empty where there are too few trials."""
    with warnings.catch_warnings():
        # Optuna warns that this is experimental.
        warnings.simplefilter("ignore")
        try:
            return optuna.importance.get_param_importances(study, params=list(varied))
        except (ValueError, RuntimeError):
            return {}
