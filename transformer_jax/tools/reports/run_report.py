"""The report on several runs: results, curves, settings that differ, best checkpoints."""

from collections.abc import Callable, Sequence
from pathlib import Path

from transformer_jax.config import ConfigError, ExperimentConfig, Metric, flatten
from transformer_jax.config.tasks import TASKS
from transformer_jax.data.sentence_pairs import did_you_mean
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.open_copies import with_addresses
from transformer_jax.tools.pictures.curves import draw_curves, read_series
from transformer_jax.tools.reports.document import Document, Picture, Section, Table, to_csv
from transformer_jax.tools.reports.run_summary import RunSummary
from transformer_jax.tools.reports.scored_text import settings_of_scored_text

Value = float | int | None

Column = tuple[str, str, str, Callable[[RunSummary], Value]]
"""Heading in the tables, name in the CSV, format, and value."""
AT_UPDATE: Column = ("at update", "best_update", "{:,}", lambda run: run.best_update)
COLUMNS: tuple[Column, ...] = (
    ("updates", "updates", "{:,}", lambda run: run.updates),
    ("target tokens", "target_tokens", "{:,}", lambda run: run.target_tokens),
    ("parameters", "parameters", "{:,}", lambda run: run.parameters),
    ("tokens/s", "target_tokens_per_second", "{:,.0f}", lambda run: run.tokens_per_second),
    ("time", "seconds", "", lambda run: run.seconds),
)
MEANING = (
    "Metrics are from the best validation, after the update shown. Columns that name a split have the score of the best "
    "checkpoint on the whole split; all its scores are under Evaluations. Perplexities are comparable only between runs "
    "with the same tokenizer. Target tokens are the total over training, an estimate after the last line of the log; "
    "tokens/s is the median of the logged target tokens per second. Time is the total in goodput.json. An empty cell is not "
    "known, or not yet."
)


def run_report(runs: Sequence[RunSummary], curves: tuple[Picture | str, ...]) -> Document:
    """The whole report."""
    settings = differing_settings([run.config for run in runs])
    equal = "All settings are the same." if len(runs) > 1 else "There is only one run."
    paths = Table(
        ("run", "best checkpoint", "folder"),
        tuple(
            (run.name, _text("{:,}", run.best_step), with_addresses(str(run.best_checkpoint or "none yet")))
            for run in runs
        ),
        of_text=frozenset({0, 2}),
    )
    scoring = dict.fromkeys(run.config.scoring for run in runs if run.config.scoring)
    sections = [
        Section("Results", (*results_tables(runs), *signs_of_runs(runs), *different_text(runs), *scoring, MEANING)),
        Section("Curves", curves or ("Nothing was measured yet.",)),
        Section("Settings that differ", (settings_table([run.name for run in runs], settings) if settings else equal,)),
        Section("Best checkpoints", (paths, *damage(runs))),
    ]
    if any(run.evaluations for run in runs):
        sections.append(Section("Evaluations", (_evaluations_table(runs),)))
    return Document("1 run" if len(runs) == 1 else f"{len(runs)} runs", tuple(sections))


def results_tables(runs: Sequence[RunSummary]) -> tuple[Table, Table]:
    """Two tables with a row per run: scores, of splits by the metric that selects checkpoints; and size, speed and time."""
    metrics = _metrics_of(runs)
    selecting = {run.config.selection for run in runs}
    splits = [(split, each) for split, each in _split_metrics(runs) if each in selecting]
    labels = [*(each.label for each in metrics), AT_UPDATE[0], *(f"{split} {each.label}" for split, each in splits)]
    scores = [
        (
            run.name,
            *(_score(each, run.metrics.get(each.name)) for each in metrics),
            _text(AT_UPDATE[2], run.best_update),
            *(_score(each, run.score_of_best(split, each.name)) for split, each in splits),
        )
        for run in runs
    ]
    costs = [(run.name, *(_text(form, read(run)) for _, _, form, read in COLUMNS)) for run in runs]
    return Table(("run", *labels), tuple(scores)), Table(("run", *(each[0] for each in COLUMNS)), tuple(costs))


def report_csv(runs: Sequence[RunSummary]) -> str:
    """A line per run: results in full precision, scores of splits, settings that differ, folders."""
    metrics, split_metrics = _metrics_of(runs), _split_metrics(runs)
    settings = differing_settings([run.config for run in runs])
    names = [f"validation_{each.name}" for each in metrics]
    split_names = [f"{split} {each.name}" for split, each in split_metrics]
    rows = [
        [
            run.name,
            *(run.metrics.get(each.name) for each in metrics),
            *(read(run) for _, _, _, read in (AT_UPDATE, *COLUMNS)),
            *(run.score_of_best(split, each.name) for split, each in split_metrics),
            *(values[number] for values in settings.values()),
            *(run.best_checkpoint, run.folder),
        ]
        for number, run in enumerate(runs)
    ]
    columns = [column[1] for column in (AT_UPDATE, *COLUMNS)]
    headings = ["run", *names, *columns, *split_names, *settings, "best_checkpoint", "folder"]
    return with_addresses(to_csv(headings, rows))


def damage(runs: Sequence[RunSummary]) -> list[str]:
    """A warning for each checkpoint whose score cannot be read; it may be the best."""
    return [f"{run.name}: {folder} is damaged: its score cannot be read." for run in runs for folder in run.damaged]


def signs_of_runs(runs: Sequence[RunSummary]) -> list[str]:
    """Signs that a model does not learn, by run."""
    return [f"{run.name}: {sign}." for run in runs for sign in run.signs]


def different_text(runs: Sequence[RunSummary]) -> list[str]:
    """A warning, unless the settings say that all runs were scored on the same text, by the same measure."""
    configs = [run.config for run in runs]
    if len({config.task for config in configs}) > 1:
        return ["The runs have different tasks: their scores are not comparable; each task is listed separately."]
    differing = differing_settings(configs)
    incomparable = {key for config in configs for key in config.selection.changed_by(differing)}
    deciding = settings_of_scored_text(configs) | incomparable
    differ = [key for key in differing if key in deciding]
    words = "their scores are not comparable, so the order here has no meaning."
    if differ == ["training.validation_sentences"]:
        words = "compare the scores of the whole split (transformer-jax evaluate RUN --split=validation), not of validations."
    return [f"The runs differ in {', '.join(differ)}: {words}"] if differ else []


def differing_settings(configs: Sequence[ExperimentConfig]) -> dict[str, list[str]]:
    """The settings that differ between runs, sorted by key, with the value of each run.

    Values are written as after ``--config.KEY=``, an empty value as ``''``; for a run whose kind of model lacks a setting the
    value is ``""``: ``{"model.cell": ["", "lstm"], "model.dropout": ["0.1", "0.3"]}``.
    """
    settings = [{key: str(value) or "''" for key, value in flatten(config).items()} for config in configs]
    keys = sorted({key for each in settings for key in each})
    values = {key: [each.get(key, "") for each in settings] for key in keys}
    return {key: shown for key, shown in values.items() if len(set(shown)) > 1}


def settings_table(names: Sequence[str], settings: dict[str, list[str]]) -> Table:
    """A row per setting and a column per run, or transposed if there are more runs than settings."""
    columns = tuple(zip(*settings.values(), strict=True))
    if len(names) > len(settings):
        rows = tuple((name, *values) for name, values in zip(names, columns, strict=True))
        headings = ("run", *settings)
    else:
        rows = tuple((key, *values) for key, values in settings.items())
        headings = ("setting", *names)
    return Table(headings, rows, of_text=frozenset(range(len(headings))))


def _below(metric: str, known: Sequence[str]) -> list[str]:
    return [key for key in known if key == metric or key.startswith(f"{metric}/")]


def draw_run_curves(runs: Sequence[RunSummary], chosen: Sequence[str], path: Path) -> tuple[Picture | str, ...]:
    """Draws the ``chosen`` metrics, by default the tasks' metrics, the training loss and the watched statistics.

    train/gradient_norms stands for all metrics below it. Also returns a sentence for each run whose curves hide another's.
    Empty if nothing is measured.
    Raises ConfigError for a chosen metric that no run has measured.
    """
    found = {
        run.name: {
            key for each in read_metrics(RunDirectory(run.folder).metrics) for key in each if each[key] is not None
        }
        for run in runs
    }
    known = sorted(set().union(*found.values()))
    for metric in chosen:
        if not _below(metric.strip(), known):
            hint = did_you_mean(metric.strip(), known) or f"; measured: {', '.join(known) or 'none yet'}"
            raise ConfigError(f"--metrics: no run has measured {metric.strip()!r}{hint}")
    # Perplexity already shows the validation loss.
    default = [*(each.key for each in _tasks_metrics(runs) if each.name != "loss"), "train/loss"]
    default += [f"train/{name}" for run in runs for name in run.config.training.watch_names]
    keys = list(dict.fromkeys(key for metric in map(str.strip, chosen or default) for key in _below(metric, known)))
    drawn = [run for run in runs if found[run.name] & set(keys)]
    if not drawn:
        return ()
    files = [RunDirectory(run.folder).metrics for run in drawn]
    names = [run.name for run in drawn]
    draw_curves(files, keys, path, names=names, columns=2)
    series = [read_series(file, keys) for file in files]
    shown = [names[series.index(each)] for each in series]
    hidden = (f"{name} hides {other}: equal curves." for other, name in zip(shown, names, strict=True) if name != other)
    words = f"{', '.join(keys)} of {', '.join(names)} against the updates."
    return Picture(path.name, path.read_bytes(), words), *hidden


def _evaluations_table(runs: Sequence[RunSummary]) -> Table:
    saved = [(run.name, each) for run in runs for each in run.evaluations]
    measured = {name for _, each in saved for name, value in each.metrics.items() if value is not None}
    metrics = [each for each in _tasks_metrics(runs) if not each.defined_by and each.name in measured]
    signature = ["signature"] if any(each.signature for _, each in saved) else []
    rows = [
        (
            *(name, each.split, each.parameters),
            *(_score(metric, each.metrics.get(metric.name)) for metric in metrics),
            *([each.signature] if signature else []),
            each.file,
        )
        for name, each in saved
    ]
    headings = ("run", "split", "checkpoint", *(metric.label for metric in metrics), *signature, "file")
    of_text = frozenset({0, 1, *range(3 + len(metrics), len(headings))})
    return Table(headings, tuple(rows), of_text)


def _tasks_metrics(runs: Sequence[RunSummary]) -> list[Metric]:
    return list(dict.fromkeys(metric for run in runs for metric in TASKS[run.config.task].metrics))


def _metrics_of(runs: Sequence[RunSummary]) -> list[Metric]:
    """Metrics that select checkpoints or that any run has measured, except the loss, which perplexity already shows."""
    selecting = {run.config.selection for run in runs}
    measured = {name for run in runs for name, value in run.metrics.items() if value is not None} - {"loss"}
    return [metric for metric in _tasks_metrics(runs) if metric in selecting or metric.name in measured]


def _split_metrics(runs: Sequence[RunSummary]) -> list[tuple[str, Metric]]:
    """Splits on which a best checkpoint was evaluated, each with a metric that it has."""
    splits = sorted({saved.split for run in runs for saved in run.evaluations})
    metrics = [metric for metric in _tasks_metrics(runs) if not metric.defined_by]
    pairs = [(split, metric) for split in splits for metric in metrics]
    return [pair for pair in pairs if any(run.score_of_best(pair[0], pair[1].name) is not None for run in runs)]


def _score(metric: Metric, value: float | None) -> str:
    return "" if value is None else metric.text(value)


def _text(form: str, value: Value) -> str:
    """The formatted value, without a form as h:mm:ss; empty if there is none."""
    if value is None or form:
        return "" if value is None else form.format(value)
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
