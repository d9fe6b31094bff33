"""The report of several runs: results, curves, differing settings, best checkpoints."""

from collections.abc import Callable, Sequence

from transformer_jax.config import Metric
from transformer_jax.config.evaluation import TOKENIZER_KEY
from transformer_jax.config.tasks import TASKS
from transformer_jax.tools.reports.differing_settings import differing_settings, settings_table
from transformer_jax.tools.reports.document import Document, Picture, Section, Table
from transformer_jax.tools.reports.report_files import to_csv
from transformer_jax.tools.reports.run_summary import RunSummary

Value = float | int | None

# Heading in the tables, name in the CSV, how it is written, and where it comes from.
COLUMNS: tuple[tuple[str, str, str, Callable[[RunSummary], Value]], ...] = (
    ("at update", "best_update", "{:,}", lambda run: run.best_update),
    ("updates", "updates", "{:,}", lambda run: run.updates),
    ("target tokens", "target_tokens", "{:,}", lambda run: run.target_tokens),
    ("parameters", "parameters", "{:,}", lambda run: run.parameters),
    ("tokens/s", "target_tokens_per_second", "{:,.0f}", lambda run: run.tokens_per_second),
    ("time", "seconds", "", lambda run: run.seconds),
)
MEANING = (
    "The metrics are those of the best validation, made after that update; perplexities compare only where the tokenizer is "
    "the same. Target tokens are all that were trained on; tokens/s, of the target, is the median "
    "of what was logged. Time is what goodput.json accounts for. The last columns, if any, are of whole splits, scored "
    "with the best checkpoint. An empty cell is not known, or not yet."
)

# Where pairs are held out for validation, drawn from the training text.
HELD_OUT_TEXT = frozenset({"seed", "data.seed", "data.train", "data.train_split"})
# What decides which text a validation scores; the text of a generated validation split depends on no seed.
SCORED_TEXT = frozenset(
    {
        "data.source",
        "data.directory",
        "data.name",
        "data.documents",
        "data.held_out",
        "data.generated_sentences",
        "data.source_language",
        "data.target_language",
        "data.generated_words",
        "data.validation_split",
        "data.validation",
        "training.validation_sentences",
        TOKENIZER_KEY,
    }
)


def results_table(runs: Sequence[RunSummary]) -> Table:
    """A row for each run: its metrics, the columns above, the scores of the best checkpoint on every evaluated split."""
    metrics, split_metrics = _metrics_of(runs), _split_metrics(runs)
    headings = (
        "run",
        *(metric.label for metric in metrics),
        *(column[0] for column in COLUMNS),
        *(f"{split} {metric.label}" for split, metric in split_metrics),
    )
    rows = []
    for run in runs:
        scores = (_text(metric, run.metrics.get(metric.name)) for metric in metrics)
        values = (_written(form, read(run)) for _, _, form, read in COLUMNS)
        of_splits = (_text(metric, _split_score(run, split, metric)) for split, metric in split_metrics)
        rows.append((run.name, *scores, *values, *of_splits))
    return Table(headings, tuple(rows))


def run_report(runs: Sequence[RunSummary], curves: Picture | None) -> Document:
    """The whole report."""
    settings = differing_settings([run.config for run in runs])
    equal = "All settings are the same." if len(runs) > 1 else "There is one run, and nothing to differ from."
    shown = settings_table([run.name for run in runs], settings) if settings else equal
    paths = Table(
        ("run", "best checkpoint", "folder"),
        tuple((run.name, _written("{:,}", run.best_step), str(run.best_checkpoint or "none yet")) for run in runs),
        of_text=frozenset({0, 2}),
        linked=frozenset({2}),
    )
    scoring = dict.fromkeys(run.config.scoring for run in runs if run.config.scoring)
    sections = [
        Section("Results", (results_table(runs), *not_learning(runs), *different_text(runs), *scoring, MEANING)),
        Section("Curves", (curves or "Nothing was measured yet.",)),
        Section("Settings that differ", (shown,)),
        Section("Best checkpoints", (paths, *damage(runs))),
    ]
    evaluations = _evaluations_table(runs)
    if evaluations.rows:
        sections.append(Section("Evaluations", (evaluations,)))
    title = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return Document(title, tuple(sections))


def different_text(runs: Sequence[RunSummary]) -> list[str]:
    """A warning, unless all runs were scored on the same text according to their settings."""
    if len({run.config.task for run in runs}) > 1:
        return ["The runs are of different tasks: their scores do not compare; each task is listed for itself."]
    configs = [run.config for run in runs]
    deciding = SCORED_TEXT
    if any(getattr(config.data, "held_out", 0) and config.data.source == "text" for config in configs):
        same_draw = len({config.data_seed for config in configs}) == 1
        deciding |= HELD_OUT_TEXT - ({"seed", "data.seed"} if same_draw else set())
    differ = [key for key in differing_settings(configs) if key in deciding]
    if not differ:
        return []
    return [
        f"The runs differ in {', '.join(differ)}: scores of different text do not compare, nor does their order here."
    ]


def not_learning(runs: Sequence[RunSummary]) -> list[str]:
    """A warning for each sign that a model does not learn."""
    return [f"{run.name}: {sign}." for run in runs for sign in run.signs]


def damage(runs: Sequence[RunSummary]) -> list[str]:
    """A warning about each checkpoint whose score cannot be read: it may be the best."""
    return [f"{run.name}: {folder} is damaged: its score cannot be read." for run in runs for folder in run.damaged]


def report_csv(runs: Sequence[RunSummary]) -> str:
    """A line for each run: its results in full, the settings that differ, the scores of splits, its folders."""
    settings = differing_settings([run.config for run in runs])
    metrics, split_metrics = _metrics_of(runs), _split_metrics(runs)
    headings = [
        "run",
        *(f"validation_{metric.name}" for metric in metrics),
        *(column[1] for column in COLUMNS),
        *(f"{split} {metric.name}" for split, metric in split_metrics),
        *settings,
    ]
    rows = []
    for number, run in enumerate(runs):
        values = [*(run.metrics.get(metric.name) for metric in metrics), *(read(run) for _, _, _, read in COLUMNS)]
        scores = [_split_score(run, split, metric) for split, metric in split_metrics]
        where = [run.best_checkpoint, run.folder]
        rows.append([run.name, *values, *scores, *(each[number] for each in settings.values()), *where])
    return to_csv([*headings, "best_checkpoint", "folder"], rows)


def duration(seconds: float) -> str:
    """``3:25:45``: hours, minutes and seconds."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}"


def _evaluations_table(runs: Sequence[RunSummary]) -> Table:
    """Every saved evaluation, whatever it was of."""
    saved_metrics = [saved.metrics for run in runs for saved in run.evaluations]
    measured = {name for metrics in saved_metrics for name, value in metrics.items() if value is not None}
    metrics = [each for each in _tasks_metrics(runs) if each.is_independent_of_tokenizer and each.name in measured]
    has_signature = any(saved.signature for run in runs for saved in run.evaluations)
    rows = [
        (
            run.name,
            saved.split,
            saved.parameters,
            *(_text(metric, saved.metrics.get(metric.name)) for metric in metrics),
            *([saved.signature] if has_signature else []),
            saved.file,
        )
        for run in runs
        for saved in run.evaluations
    ]
    labels = (metric.label for metric in metrics)
    headings = ("run", "split", "checkpoint", *labels, *(["signature"] if has_signature else []), "file")
    of_text = {0, 1, len(headings) - 1} | ({len(headings) - 2} if has_signature else set())
    return Table(headings, tuple(rows), of_text=frozenset(of_text))


def _tasks_metrics(runs: Sequence[RunSummary]) -> list[Metric]:
    """The metrics of the tasks of the runs, each once."""
    return list(dict.fromkeys(metric for run in runs for metric in TASKS[run.config.task].metrics))


def _metrics_of(runs: Sequence[RunSummary]) -> list[Metric]:
    """Those that select checkpoints, and the others that any run has measured; not the loss, which the perplexity repeats."""
    selecting = {run.config.selection for run in runs}
    measured = {name for run in runs for name, value in run.metrics.items() if value is not None} - {"loss"}
    return [metric for metric in _tasks_metrics(runs) if metric in selecting or metric.name in measured]


def _split_metrics(runs: Sequence[RunSummary]) -> list[tuple[str, Metric]]:
    """The splits on which a best checkpoint was evaluated, with the metrics of that."""
    splits = sorted({saved.split for run in runs for saved in run.evaluations if run.scores_of_best(saved.split)})
    metrics = [metric for metric in _tasks_metrics(runs) if metric.is_independent_of_tokenizer]
    pairs = [(split, metric) for split in splits for metric in metrics]
    return [pair for pair in pairs if any(_split_score(run, *pair) is not None for run in runs)]


def _split_score(run: RunSummary, split: str, metric: Metric) -> float | None:
    saved = run.scores_of_best(split)
    return None if saved is None else saved.metrics.get(metric.name)


def _text(metric: Metric, value: float | None) -> str:
    return "" if value is None else metric.text(value)


def _written(form: str, value: Value) -> str:
    """Nothing where there is no value; without a form it is a time in seconds."""
    if value is None:
        return ""
    return form.format(value) if form else duration(value)
