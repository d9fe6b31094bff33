"""Leaderboard of a sweep: the trials by metric, means over seeds, and plots."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.tools.reports.document import Document, Picture, Section, Table, to_csv, write_report
from transformer_jax.tools.sweeps.definition import SEED, Sweep, Value
from transformer_jax.tools.sweeps.study import TrialRow

CAPTIONS = {
    "history": "Metric of the trials, by number",
    "settings": "Metric against each setting; importance: how better trials differ in it (PED-ANOVA, Watanabe et al. 2023)",
}


def write_leaderboard(sweep: Sweep, trials: Sequence[TrialRow], pictures: Sequence[Path], folder: Path) -> list[Path]:
    """Writes leaderboard.md and .html, and leaderboard.csv with all metrics of every trial; returns their paths."""
    drawn = tuple(Picture(file.name, file.read_bytes(), CAPTIONS[file.stem]) for file in pictures)
    sections = tables(sweep, trials) + ((Section("Pictures", drawn),) if drawn else ())
    document = Document(f"Trials of {sweep.config}", sections)
    return write_report(folder, "leaderboard", document, {"leaderboard.csv": _csv(sweep, trials)})


def tables(sweep: Sweep, trials: Sequence[TrialRow]) -> tuple[Section, ...]:
    """The table of trials, best first, with counts by state, and the table of means over seeds if there are several."""
    states = [trial.state for trial in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    better = "higher is better" if sweep.direction == "maximize" else "lower is better"
    total = max(len(trials), len(sweep.points()))
    text = f"{counts or 'none'} of {total}. Ordered by the best {sweep.metric} of each trial, {better}."
    sections: tuple[Section, ...] = (Section("Trials", (text, trial_table(sweep, _ordered(sweep, trials)))),)
    if len(sweep.seeds) > 1:
        sections += (Section("Over seeds", (seed_table(sweep, trials),)),)
    return sections


def trial_table(sweep: Sweep, trials: Sequence[TrialRow]) -> Table:
    """A row per trial, in the given order: its settings, and its best validation so far."""
    names = list(sweep.axes())
    headings = ("trial", "state", *names, sweep.metric, "update", "minutes", "why it failed")
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
    """A row per point without its seed, best mean first: mean, minimum and maximum over the seeds that ended."""
    names = [name for name in sweep.axes() if name != SEED]
    groups: dict[tuple[Value | None, ...], list[float]] = {}
    for trial in _ordered(sweep, trials):
        if trial.has_value:
            groups.setdefault(tuple(trial.point.get(name) for name in names), []).append(trial.value or 0.0)
    order = sorted(groups, key=lambda point: statistics.mean(groups[point]), reverse=sweep.direction == "maximize")
    rows = []
    for point in order:
        found = groups[point]
        numbers = statistics.mean(found), min(found), max(found), len(found)
        rows.append((*map(shown, point), *map(shown, numbers)))
    headings = (*names, f"mean {sweep.metric}", "minimum", "maximum", "seeds")
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
    found = [key for key in dict.fromkeys(key for trial in trials for key in trial.found) if key != sweep.metric]
    rows = [
        [
            *(trial.number, trial.state, *(trial.point.get(name) for name in names), trial.value, trial.step),
            *(*(trial.found.get(key) for key in found), trial.minutes, trial.folder, trial.error),
        ]
        for trial in _ordered(sweep, trials)
    ]
    return to_csv(["trial", "state", *names, sweep.metric, "update", *found, "minutes", "folder", "error"], rows)
