"""Tables of runs and of the trials of a sweep: scores, settings that differ, means over seeds."""

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
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runs.metrics_log import sound_metrics
from transformer_jax.tasks.saved_evaluations import signature_of, whose_parameters
from transformer_jax.tools.pictures.curves import draw_curves, read_series
from transformer_jax.tools.pictures.panels import HeatMapPanel, LinePanel, Panel, draw_panels
from transformer_jax.tools.study.comparability import different_text, differing_settings
from transformer_jax.tools.study.document import Cell, Document, Picture, Section, Table, to_csv, write_report
from transformer_jax.tools.study.run_summary import RunSummary
from transformer_jax.tools.study.seed_statistics import paired_test
from transformer_jax.tools.study.sweeps import SEED, Choice, LogUniform, Sweep, TrialRow, Value

MEANING = (
    "Metrics are from the best validation, on the examples in the table, after the update shown. Columns with the name of a "
    "split have the score of the best checkpoint on the whole split. All its scores are under Evaluations. Perplexities are "
    "comparable only between runs with the same tokenizer. Target tokens are the total over training, an estimate after "
    "the last line of the log. Tokens/s is the median of the logged target tokens per second. Time is the total in "
    "goodput.json. An empty cell is unknown, or not measured yet."
)
ABSOLUTE_FOLDERS = re.compile(r"(?<![\w.:/])(?:/[^/,\s]+)+/(?=[^/,\s]+/[^/,\s]+)")
OVER_SEEDS = "Mean over runs that differ in their seed alone, with its 95 % interval by Student's t."


def seed_table(settings: Sequence[str], runs: Iterable[tuple[tuple[Any, ...], float | None]], metric: Metric) -> Table:
    """Return rows of runs with equal ``settings``, the best mean first."""
    groups: dict[tuple[Any, ...], list[float | None]] = {}
    for point, value in runs:
        groups.setdefault(point, []).append(value)
    sound = {point: [value for value in values if value is not None] for point, values in groups.items()}
    sign = -1 if metric.direction == "maximize" else 1
    rows = []
    for point in sorted(groups, key=lambda group: (not sound[group], sign * fmean(sound[group] or [0.0]))):
        values, count = sound[point], len(groups[point])
        test = paired_test(values)
        mean = Cell.of(values[0] if values else None, metric.text)
        mean = Cell.interval(test.mean, test.low, test.high, metric.digits) if test else mean
        rows.append((*map(shown, point), mean, f"{len(values)} of {count}"))
    return Table((*settings, Cell.of_interval(metric.label), "seeds"), tuple(rows), frozenset(range(len(settings))))


def shown(value: Value | None) -> str:
    """Return a value as text, floats with four significant digits, None as nothing."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def report_on_runs(
    runs: Sequence[RunSummary], curves: Sequence[Picture | str], sentences: Section | None = None
) -> tuple[Document, str, Section]:
    """Return the report, CSV with a line per run, and a section of scores, costs and warnings."""
    scores, costs, checkpoints = _score_table(runs), _cost_table(runs), _checkpoint_table(runs)
    names = [run.name for run in runs]
    differing = differing_settings([run.config for run in runs])
    settings = {key: _without_far_folders(texts) for key, texts in differing.items()}
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
    title = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    csv = to_csv(scores, costs, Table.of_columns(("run", names), *settings.items()), checkpoints)
    return Document(title, tuple(sections)), csv, Section(title, (scores, costs, *remarks))


def from_best(run: RunSummary) -> tuple[str, bool, float]:
    """Return a sort key: by task, the best score first, runs without a score last."""
    sign = -1 if run.config.selection.direction == "maximize" else 1
    return run.config.task, run.score is None, sign * (run.score or 0.0)


def settings_table(names: Sequence[str], settings: Mapping[str, Sequence[str]]) -> Table:
    """Return a row per setting and a column per run, transposed if there are more runs."""
    rows = tuple((key, *values) for key, values in settings.items())
    headings = "setting", *names
    if len(names) > len(settings):
        headings, *rows = zip(("run", *names), *rows, strict=True)  # type: ignore[assignment]
    return Table(headings, tuple(rows), of_text=frozenset(range(len(headings))))


def _over_seeds(runs: Sequence[RunSummary], settings: Mapping[str, Sequence[str]]) -> Table | None:
    """Return means over seeds if several runs of one task differ in their seed alone."""
    keys = [key for key in settings if key != SEED]
    points = [tuple(settings[key][number] for key in keys) for number in range(len(runs))]
    if len({run.config.task for run in runs}) > 1 or len(set(points)) == len(points):
        return None
    return seed_table(keys, zip(points, [run.score for run in runs], strict=True), runs[0].config.selection)


def _score_table(runs: Sequence[RunSummary]) -> Table:
    """Return scores of validations, and of whole splits by the metric that selects checkpoints."""
    every, selecting = _tasks_metrics(runs), {run.config.selection for run in runs}
    # Perplexity already shows the loss.
    measured = {name for run in runs for name, value in run.metrics.items() if value is not None} - {"loss"}
    metrics = [metric for metric in every if metric in selecting or metric.name in measured]
    names = sorted({report["split"] for run in runs for report in run.evaluations.values()})
    splits = [
        (split, metric)
        for split in names
        for metric in every
        if metric in selecting
        and not metric.defined_by
        and any(run.score_of_best(split, metric.name) is not None for run in runs)
    ]
    bases = {run.basis for run in runs}
    # If all runs have one basis, the heading of the selecting metric has it.
    of_all = bases.pop() if len(bases) == 1 else ""
    columns: list[tuple[Any, list[Any]]] = [("run", [run.name for run in runs])]
    for metric in metrics:
        heading = metric.heading(of_all) if metric in selecting else metric.label
        cells = [Cell.of(run.metrics.get(metric.name), metric.text) for run in runs]
        columns.append((Cell(heading, f"validation_{metric.name}"), cells))
    columns += [("validated on", [run.basis for run in runs])] if bases else []
    columns.append((Cell("at update", "best_update"), [Cell.of(run.best_update, "{:,}") for run in runs]))
    for split, metric in splits:
        scores = [Cell.of(run.score_of_best(split, metric.name), metric.text) for run in runs]
        columns.append((Cell(f"{split} {metric.label}", f"{split} {metric.name}"), scores))
    return Table.of_columns(*columns, of_text={0, 1 + len(metrics)} if bases else {0})


def _cost_table(runs: Sequence[RunSummary]) -> Table:
    columns: tuple[tuple[str, str, str | Callable[[float], str]], ...] = (
        ("updates", "updates", "{:,}"),
        ("target tokens", "target_tokens", "{:,}"),
        ("parameters", "parameters", "{:,}"),
        ("tokens/s", "target_tokens_per_second", "{:,.0f}"),
        ("time", "seconds", _clock),
    )
    cells = ((Cell(text, name), [Cell.of(getattr(run, name), form) for run in runs]) for text, name, form in columns)
    return Table.of_columns(("run", [run.name for run in runs]), *cells)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _checkpoint_table(runs: Sequence[RunSummary]) -> Table:
    return Table.of_columns(
        ("run", [run.name for run in runs]),
        (Cell("best checkpoint", "best_checkpoint"), [Cell.of(run.best_checkpoint, _from_here) for run in runs]),
        ("folder", [_from_here(run.folder) for run in runs]),
        of_text=range(3),
    )


def _from_here(path: Path) -> str:
    """Return a path relative to the working directory, so that a report has no home directory."""
    return os.path.relpath(path) if isinstance(path, Path) else str(path)


def _without_far_folders(values: Sequence[str]) -> list[str]:
    """Shorten absolute paths to last folder and name, unless different values would be equal."""
    shown = [ABSOLUTE_FOLDERS.sub(".../", value) for value in values]
    return shown if len(set(shown)) == len(set(values)) else [*values]


def _evaluations_table(runs: Sequence[RunSummary]) -> Table:
    saved = [(run.name, file, report) for run in runs for file, report in run.evaluations.items()]
    measured = {name for *_, report in saved for name, value in report["metrics"].items() if value is not None}
    metrics = [metric for metric in _tasks_metrics(runs) if not metric.defined_by and metric.name in measured]
    return Table.of_columns(
        ("run", [name for name, *_ in saved]),
        ("split", [report["split"] for *_, report in saved]),
        ("checkpoint", [whose_parameters(report) for *_, report in saved]),
        *(
            (metric.label, [Cell.of(report["metrics"].get(metric.name), metric.text) for *_, report in saved])
            for metric in metrics
        ),
        ("signature", [signature_of(report) for *_, report in saved]),
        ("file", [file for _, file, _ in saved]),
        of_text={0, 1, 2, 3 + len(metrics), 4 + len(metrics)},
    )


def _tasks_metrics(runs: Sequence[RunSummary]) -> list[Metric]:
    return list(dict.fromkeys(metric for run in runs for metric in TASKS[run.config.task].metrics))


def draw_run_curves(runs: Sequence[RunSummary], metrics: Sequence[str], path: Path) -> list[Picture | str]:
    """Draw metrics, by default the tasks' metrics, the training loss and the watched statistics.

    train/gradient_norms stands for all metrics below it. Returns the picture, and a sentence on
    every run whose curves hide another's, or nothing if nothing is measured.
    """
    keys_of = {
        run.name: {key for record in records for key in record if record[key] is not None}
        for run, records in ((run, sound_metrics(RunDirectory(run.folder).metrics).records) for run in runs)
    }
    measured = sorted(set().union(*keys_of.values()))

    def below(metric: str) -> list[str]:
        return [key for key in measured if key == metric or key.startswith(f"{metric}/")]

    metrics = [metric.strip() for metric in metrics]
    for metric in metrics:
        if not below(metric):
            hint = did_you_mean(metric, measured) or f"; measured: {', '.join(measured) or 'none yet'}"
            raise ConfigError("--metrics", f"no run has measured {metric!r}{hint}")
    # Perplexity already shows the validation loss.
    default = [*(metric.key for metric in _tasks_metrics(runs) if metric.name != "loss"), "train/loss"]
    default += [f"train/{name}" for run in runs for name in run.config.training.watch_names]
    keys = list(dict.fromkeys(key for metric in metrics or default for key in below(metric)))
    files = {run.name: RunDirectory(run.folder).metrics for run in runs if keys_of[run.name] & set(keys)}
    if not files:
        return []
    names = [*files]
    draw_curves([*files.values()], keys, path, names=names, columns=2)
    series = [read_series(file, keys) for file in files.values()]
    visible = [names[series.index(curve)] for curve in series]
    pairs = zip(visible, names, strict=True)
    words = f"{', '.join(keys)} of {', '.join(names)} against the updates."
    hidden = [f"{name} hides {other}: equal curves." for other, name in pairs if name != other]
    return [Picture(path.name, path.read_bytes(), words), *hidden]


def write_leaderboard(sweep: Sweep, trials: Sequence[TrialRow], folder: Path) -> tuple[list[Section], list[Path]]:
    """Write leaderboard.md, .html and .csv (all metrics of all trials), and settings.png.

    Returns the tables of trials, ended ones first, and of means over seeds, and the paths.
    """
    sign, points = -1 if sweep.measured.direction == "maximize" else 1, sweep.points()
    trials = sorted(trials, key=lambda trial: (not trial.has_value, sign * (trial.value or 0.0) * trial.has_value))
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
        values = (trial.value if trial.state == "complete" else None for trial in trials)
        runs = zip((tuple(map(trial.point.get, names)) for trial in trials), values, strict=True)
        sections.append(Section("Over seeds", (seed_table(names, runs, sweep.measured), OVER_SEEDS)))
    picture = _draw_settings(sweep, trials, folder / "settings.png")
    caption = "Metric against the settings"
    pictures = [Section("Pictures", (Picture(picture.name, picture.read_bytes(), caption),))] if picture else []
    keys = list(dict.fromkeys(key for row in trials for key in row.metrics if key != sweep.metric_key))
    rows = tuple((row.number, *(row.metrics.get(key) for key in keys), row.folder) for row in trials)
    tables = {"leaderboard.csv": to_csv(table, Table(("trial", *keys, "folder"), rows))}
    document = Document(f"Trials of {sweep.config}", (*sections, *pictures))
    written = write_report(folder, "leaderboard", document, tables)
    return sections, [*written, picture] if picture else written


def trial_table(sweep: Sweep, trials: Sequence[TrialRow]) -> Table:
    """Return a row per trial with its settings and its best validation so far."""
    names, errors = list(sweep.axes()), [trial.error for trial in trials]
    return Table.of_columns(
        ("trial", [trial.number for trial in trials]),
        ("state", [trial.state for trial in trials]),
        *((name, [Cell.of(trial.point.get(name), shown) for trial in trials]) for name in names),
        (sweep.metric_key, [Cell.of(trial.value, shown) for trial in trials]),
        ("update", [trial.step for trial in trials]),
        ("minutes", [Cell.of(trial.minutes, "{:.1f}") for trial in trials]),
        *([(Cell("why it failed", "error"), errors)] if any(errors) else []),
        of_text={1, *range(2, 2 + len(names)), 5 + len(names)},
    )


def heat_map(axes: Sequence[str], trials: Sequence[TrialRow], metric: Metric) -> HeatMapPanel:
    """Return the mean value over seeds at every point of a grid of two settings."""
    sides = [sorted({trial.point[name] for trial in trials}) for name in axes]
    by_point: dict[tuple[Any, ...], list[float]] = {}
    for trial in trials:
        by_point.setdefault(tuple(trial.point[name] for name in axes), []).append(trial.value or 0.0)
    means = np.array([[fmean(by_point.get((row, column), [math.nan])) for column in sides[1]] for row in sides[0]])
    rows, columns = ([str(value) for value in side] for side in sides)
    better = "higher" if metric.direction == "maximize" else "lower"
    return HeatMapPanel(f"{metric.key}, {better} is better", means, rows, columns, axes[1], axes[0], metric.digits)


def _draw_settings(sweep: Sweep, trials: Sequence[TrialRow], path: Path) -> Path | None:
    """Draw the complete trials against the settings in which they differ, if they do."""
    done = [trial for trial in trials if trial.state == "complete" and trial.has_value]
    varied = sorted({name for trial in done for name, value in trial.point.items() if value != done[0].point.get(name)})
    if not varied or len({trial.value for trial in done}) == 1:
        return None
    panels: list[Panel] = []
    axes = [name for name in varied if name != SEED]
    if sweep.is_grid and len(axes) == 2:
        panels.append(heat_map(axes, done, sweep.measured))
    for name in varied:
        points = sorted((trial.point[name], trial.value) for trial in done if name in trial.point)
        # Values of a Choice are categories.
        is_category = sweep.is_grid or isinstance(sweep.space[name], Choice)
        values = np.array([str(value) if is_category else value for value, _ in points])
        lines = {"trial": (values, np.array([score for _, score in points]))}
        scale = "log" if isinstance(sweep.space.get(name), LogUniform) else "linear"
        panels.append(LinePanel(name, lines, "", sweep.metric_key, x_scale=scale, marks="o", unlisted=("trial",)))
    return draw_panels(panels, path, title="Score against the settings")
