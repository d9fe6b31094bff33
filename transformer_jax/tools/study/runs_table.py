"""Tables of runs: of run directories and of the trials of a sweep, with scores, settings that differ, and means over seeds."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from transformer_jax.config import ConfigError, Metric
from transformer_jax.config.tasks import TASKS
from transformer_jax.data.sentence_pairs import did_you_mean
from transformer_jax.files.json_text import printable
from transformer_jax.files.terminal import paragraph, table_width
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runs.metrics_log import sound_metrics
from transformer_jax.tasks.saved_evaluations import signature_of, whose_parameters
from transformer_jax.tools.pictures.curves import draw_curves, read_series
from transformer_jax.tools.pictures.panels import HeatMapPanel, LinePanel, Panel, draw_panels
from transformer_jax.tools.study.comparability import different_text, differing_settings
from transformer_jax.tools.study.document import Cell, Document, Picture, Section, Table, to_csv, to_text, write_report
from transformer_jax.tools.study.run_summary import RunSummary
from transformer_jax.tools.study.seed_statistics import paired_test
from transformer_jax.tools.study.sweeps import SEED, Choice, LogUniform, Sweep, TrialRow, Value

MEANING = (
    "Metrics are from the best validation, of the examples that the table names, after the update shown. Columns that name a "
    "split have the score of the best checkpoint on the whole split; all its scores are under Evaluations. Perplexities are "
    "comparable only between runs with the same tokenizer. Target tokens are the total over training, an estimate after "
    "the last line of the log; tokens/s is the median of the logged target tokens per second. Time is the total in "
    "goodput.json. An empty cell is not known, or not yet."
)
ABSOLUTE_FOLDERS = re.compile(r"(?<![\w.:/])(?:/[^/,\s]+)+/(?=[^/,\s]+/[^/,\s]+)")
OVER_SEEDS = "Mean over runs that differ in their seed alone; in brackets its 95 % interval by Student's t."


def seed_table(settings: Sequence[str], runs: Iterable[tuple[tuple[Any, ...], float | None]], metric: Metric) -> Table:
    """Return a row for runs with equal ``settings``, the best mean first; a run without a value (None) only counts."""
    groups: dict[tuple[Any, ...], list[float | None]] = {}
    for point, value in runs:
        groups.setdefault(point, []).append(value)
    sound = {point: [value for value in values if value is not None] for point, values in groups.items()}
    sign = -1 if metric.direction == "maximize" else 1
    rows = []
    for point in sorted(groups, key=lambda each: (not sound[each], sign * fmean(sound[each] or [0.0]))):
        values, count = sound[point], len(groups[point])
        test = paired_test(values)
        mean = Cell.of(values[0] if values else None, metric.text)
        mean = Cell.interval(test.mean, test.low, test.high, metric.digits) if test else mean
        rows.append((*map(shown, point), mean, f"{len(values)} of {count}"))
    return Table((*settings, Cell.of_interval(metric.label), "seeds"), tuple(rows), frozenset(range(len(settings))))


def shown(value: Value | None) -> str:
    """Return a value as text, floats with four significant digits; empty for None."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def report_on_runs(
    runs: Sequence[RunSummary], curves: Sequence[Picture | str], sentences: Section | None = None
) -> tuple[Document, str, str]:
    """Return the report on runs, a line of CSV for each, and the text to print: its tables of scores and cost, and warnings."""
    scores, costs, checkpoints = _score_table(runs), _cost_table(runs), _checkpoint_table(runs)
    names = [run.name for run in runs]
    settings = {
        key: _without_far_folders(shown) for key, shown in differing_settings([run.config for run in runs]).items()
    }
    remarks = [f"WARNING: {run.name}: {sign}." for run in runs for sign in run.signs]
    remarks += different_text([run.config for run in runs])
    remarks += [f"WARNING: {run.name}: {problem}." for run in runs for problem in run.problems]
    scoring = dict.fromkeys(run.config.scoring for run in runs if run.config.scoring)
    equal = "All settings are the same." if len(runs) > 1 else "There is only one run."
    sections = [
        Section("Results", (scores, costs, *remarks, *scoring, MEANING)),
        Section("Curves", tuple(curves) or ("Nothing was measured yet.",)),
        *([sentences] if sentences else []),
        Section("Settings that differ", (settings_table(names, settings) if settings else equal,)),
        Section("Best checkpoints", (checkpoints,)),
    ]
    if SEED in settings and (seeds := _over_seeds(runs, settings)):
        sections.insert(1, Section("Over seeds", (seeds, OVER_SEEDS)))
    if any(run.evaluations for run in runs):
        sections.append(Section("Evaluations", (_evaluations_table(runs),)))
    document = Document("1 run" if len(runs) == 1 else f"{len(runs)} runs", tuple(sections))
    by_run = Table(("run", *settings), tuple(zip(names, *settings.values(), strict=True)))
    csv = to_csv(scores, costs, by_run, checkpoints)
    told = [paragraph(printable(each)) if table_width() else printable(each) for each in remarks]
    return document, csv, "\n\n".join([to_text(scores), to_text(costs), "\n".join(told)]).strip()


def from_best(run: RunSummary) -> tuple[str, bool, float]:
    """Sort key: by task, the best score first; runs without a score come last."""
    sign = -1 if run.config.selection.direction == "maximize" else 1
    return run.config.task, run.score is None, sign * (run.score or 0.0)


def settings_table(names: Sequence[str], settings: Mapping[str, Sequence[str]]) -> Table:
    """Return a row per setting and a column per run, or transposed if there are more runs than settings."""
    rows = tuple((key, *values) for key, values in settings.items())
    headings = "setting", *names
    if len(names) > len(settings):
        headings, *rows = zip(("run", *names), *rows, strict=True)  # type: ignore[assignment]
    return Table(headings, tuple(rows), of_text=frozenset(range(len(headings))))


def _over_seeds(runs: Sequence[RunSummary], settings: Mapping[str, Sequence[str]]) -> Table | None:
    """None unless several runs of one task differ in their seed alone."""
    keys = [key for key in settings if key != SEED]
    points = [tuple(settings[key][number] for key in keys) for number in range(len(runs))]
    if len({run.config.task for run in runs}) > 1 or len(set(points)) == len(points):
        return None
    return seed_table(keys, zip(points, [run.score for run in runs], strict=True), runs[0].config.selection)


def _score_table(runs: Sequence[RunSummary]) -> Table:
    """Scores of validations, and of whole splits by the metric that selects checkpoints."""
    every, selecting = _tasks_metrics(runs), {run.config.selection for run in runs}
    # Perplexity already shows the loss.
    measured = {name for run in runs for name, value in run.metrics.items() if value is not None} - {"loss"}
    metrics = [metric for metric in every if metric in selecting or metric.name in measured]
    names = sorted({report["split"] for run in runs for report in run.evaluations.values()})
    pairs = [(split, metric) for split in names for metric in every if metric in selecting and not metric.defined_by]
    splits = [
        (split, each) for split, each in pairs if any(run.score_of_best(split, each.name) is not None for run in runs)
    ]
    bases = {run.basis for run in runs}
    of_all = bases.pop() if len(bases) == 1 else ""
    headings = (
        *(
            Cell(each.heading(of_all) if each in selecting else each.label, f"validation_{each.name}")
            for each in metrics
        ),
        *(["validated on"] if bases else []),
        Cell("at update", "best_update"),
        *(Cell(f"{split} {each.label}", f"{split} {each.name}") for split, each in splits),
    )
    rows = [
        (
            *(run.name, *(Cell.of(run.metrics.get(each.name), each.text) for each in metrics)),
            *([run.basis] if bases else []),
            Cell.of(run.best_update, "{:,}"),
            *(Cell.of(run.score_of_best(split, each.name), each.text) for split, each in splits),
        )
        for run in runs
    ]
    return Table(("run", *headings), tuple(rows), frozenset({0, 1 + len(metrics)} if bases else {0}))


def _cost_table(runs: Sequence[RunSummary]) -> Table:
    columns = ("updates", "target_tokens", "parameters", "target_tokens_per_second", "seconds")
    texts = ("updates", "target tokens", "parameters", "tokens/s", "time")
    forms: tuple[str | Callable[[float], str], ...] = "{:,}", "{:,}", "{:,}", "{:,.0f}", _clock
    rows = [
        (run.name, *(Cell.of(getattr(run, name), form) for name, form in zip(columns, forms, strict=True)))
        for run in runs
    ]
    return Table(("run", *map(Cell, texts, columns)), tuple(rows))


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _checkpoint_table(runs: Sequence[RunSummary]) -> Table:
    headings = "run", Cell("best checkpoint", "best_checkpoint"), "folder"
    rows = [(run.name, Cell.of(run.best_checkpoint, _from_here), _from_here(run.folder)) for run in runs]
    return Table(headings, tuple(rows), of_text=frozenset({0, 1, 2}))


def _from_here(path: Path) -> str:
    """Return a path on a disk relative to the working directory, so that a report to send has no home directory."""
    return os.path.relpath(path) if isinstance(path, Path) else str(path)


def _without_far_folders(values: Sequence[str]) -> list[str]:
    """Values with the last folder and the name of absolute paths, unless different values would look the same."""
    shown = [ABSOLUTE_FOLDERS.sub(".../", value) for value in values]
    return shown if len(set(shown)) == len(set(values)) else [*values]


def _evaluations_table(runs: Sequence[RunSummary]) -> Table:
    saved = [(run.name, file, report) for run in runs for file, report in run.evaluations.items()]
    measured = {name for *_, report in saved for name, value in report["metrics"].items() if value is not None}
    metrics = [each for each in _tasks_metrics(runs) if not each.defined_by and each.name in measured]
    rows = [
        (
            *(name, report["split"], whose_parameters(report)),
            *(Cell.of(report["metrics"].get(metric.name), metric.text) for metric in metrics),
            *(signature_of(report), file),
        )
        for name, file, report in saved
    ]
    headings = ("run", "split", "checkpoint", *(metric.label for metric in metrics), "signature", "file")
    return Table(headings, tuple(rows), frozenset({0, 1, *range(3 + len(metrics), len(headings))}))


def _tasks_metrics(runs: Sequence[RunSummary]) -> list[Metric]:
    return list(dict.fromkeys(metric for run in runs for metric in TASKS[run.config.task].metrics))


def draw_run_curves(runs: Sequence[RunSummary], chosen: Sequence[str], path: Path) -> list[Picture | str]:
    """Draws the ``chosen`` metrics, by default the tasks' metrics, the training loss and the watched statistics.

    train/gradient_norms stands for all metrics below it. Also returns a sentence for each run whose
    curves hide another's. Empty if nothing is measured. Raises ConfigError for a chosen metric that
    no run has measured.
    """
    found = {
        run.name: {
            key
            for each in sound_metrics(RunDirectory(run.folder).metrics).records
            for key in each
            if each[key] is not None
        }
        for run in runs
    }
    known = sorted(set().union(*found.values()))

    def below(metric: str) -> list[str]:
        return [key for key in known if key == metric or key.startswith(f"{metric}/")]

    for metric in map(str.strip, chosen):
        if not below(metric):
            hint = did_you_mean(metric, known) or f"; measured: {', '.join(known) or 'none yet'}"
            raise ConfigError("--metrics", f"no run has measured {metric!r}{hint}")
    # Perplexity already shows the validation loss.
    default = [*(each.key for each in _tasks_metrics(runs) if each.name != "loss"), "train/loss"]
    default += [f"train/{name}" for run in runs for name in run.config.training.watch_names]
    keys = list(dict.fromkeys(key for metric in map(str.strip, chosen or default) for key in below(metric)))
    drawn = {run.name: RunDirectory(run.folder).metrics for run in runs if found[run.name] & set(keys)}
    if not drawn:
        return []
    names = [*drawn]
    draw_curves([*drawn.values()], keys, path, names=names, columns=2)
    series = [read_series(file, keys) for file in drawn.values()]
    visible = [names[series.index(each)] for each in series]
    hidden = [
        f"{name} hides {other}: equal curves." for other, name in zip(visible, names, strict=True) if name != other
    ]
    words = f"{', '.join(keys)} of {', '.join(names)} against the updates."
    return [Picture(path.name, path.read_bytes(), words), *hidden]


def write_leaderboard(sweep: Sweep, trials: Sequence[TrialRow], folder: Path) -> tuple[list[Section], list[Path]]:
    """Write leaderboard.md, .html and .csv, which has all metrics of every trial, and settings.png.

    Returns the tables of trials, ended ones first, and of means over seeds, and the paths.
    """
    sign, points = -1 if sweep.measured.direction == "maximize" else 1, sweep.points()
    trials = sorted(trials, key=lambda each: (not each.has_value, sign * (each.value or 0.0) * each.has_value))
    states = [trial.state for trial in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    # Commands with other --rows train other points of a grid.
    strangers = sum(trial.point not in points for trial in trials) if sweep.is_grid else 0
    total = max(len(trials), len(points) + strangers)
    better = "higher is better" if sign < 0 else "lower is better"
    words = f"{counts or 'none'} of {total}. Ended trials first, by their best {sweep.metric_key}, {better}."
    table = trial_table(sweep, trials)
    sections = [Section("Trials", (words, table))]
    if len(sweep.seeds) > 1:
        names = [name for name in sweep.axes() if name != SEED]
        # A trial that was pruned has the value of fewer updates.
        runs = [
            (tuple(each.point.get(name) for name in names), each.value if each.state == "complete" else None)
            for each in trials
        ]
        sections.append(Section("Over seeds", (seed_table(names, runs, sweep.measured), OVER_SEEDS)))
    picture = _draw_settings(sweep, trials, folder / "settings.png")
    caption = "Metric against each setting"
    drawn = [Section("Pictures", (Picture(picture.name, picture.read_bytes(), caption),))] if picture else []
    keys = list(dict.fromkeys(key for each in trials for key in each.found if key != sweep.metric_key))
    rows = tuple((each.number, *(each.found.get(key) for key in keys), each.folder) for each in trials)
    tables = {"leaderboard.csv": to_csv(table, Table(("trial", *keys, "folder"), rows))}
    document = Document(f"Trials of {sweep.config}", (*sections, *drawn))
    written = write_report(folder, "leaderboard", document, tables)
    return sections, [*written, picture] if picture else written


def trial_table(sweep: Sweep, trials: Sequence[TrialRow]) -> Table:
    """Return a row per trial, in the given order: its settings, and its best validation so far."""
    names = list(sweep.axes())
    headings: tuple[Any, ...] = ("trial", "state", *names, sweep.metric_key, "update", "minutes")
    rows: tuple[tuple[Any, ...], ...] = tuple(
        (
            *(trial.number, trial.state, *(Cell.of(trial.point.get(name), shown) for name in names)),
            *(Cell.of(trial.value, shown), trial.step, Cell.of(trial.minutes, "{:.1f}")),
        )
        for trial in trials
    )
    of_text = frozenset({1, *range(2, 2 + len(names)), len(headings)})
    if any(trial.error for trial in trials):
        headings = *headings, Cell("why it failed", "error")
        rows = tuple((*row, trial.error) for row, trial in zip(rows, trials, strict=True))
    return Table(headings, rows, of_text)


def heat_map(axes: Sequence[str], trials: Sequence[TrialRow], metric: Metric) -> HeatMapPanel:
    """Return the mean value over seeds at every point of a grid of two settings."""
    sides = [sorted({each.point[name] for each in trials}) for name in axes]
    values = [
        [
            [each.value or 0.0 for each in trials if (each.point[axes[0]], each.point[axes[1]]) == (row, column)]
            for column in sides[1]
        ]
        for row in sides[0]
    ]
    means = np.array([[fmean(of_point) if of_point else math.nan for of_point in row] for row in values])
    rows, columns = ([str(value) for value in side] for side in sides)
    better = "higher" if metric.direction == "maximize" else "lower"
    return HeatMapPanel(f"{metric.key}, {better} is better", means, rows, columns, axes[1], axes[0], metric.digits)


def _draw_settings(sweep: Sweep, trials: Sequence[TrialRow], path: Path) -> Path | None:
    """Draws the complete trials against each setting in which they differ; None if they do not."""
    done = [trial for trial in trials if trial.state == "complete" and trial.has_value]
    varied = sorted({name for each in done for name, value in each.point.items() if value != done[0].point.get(name)})
    if not varied or len({each.value for each in done}) == 1:
        return None
    panels: list[Panel] = []
    axes = [name for name in varied if name != SEED]
    if sweep.is_grid and len(axes) == 2:
        panels.append(heat_map(axes, done, sweep.measured))
    for name in varied:
        points = sorted((each.point[name], each.value) for each in done if name in each.point)
        is_chosen = sweep.is_grid or isinstance(sweep.space[name], Choice)
        is_log = not is_chosen and isinstance(sweep.space[name], LogUniform)
        # Values to choose from are categories.
        values = np.array([str(value) if is_chosen else value for value, _ in points])
        lines = {"trial": (values, np.array([score for _, score in points]))}
        scale = "log" if is_log else "linear"
        panels.append(LinePanel(name, lines, "", sweep.metric_key, x_scale=scale, marks="o", unlisted=("trial",)))
    return draw_panels(panels, path, title="Score against each setting")
