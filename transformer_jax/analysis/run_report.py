"""The report of several runs: what they reached, their curves, in what they differ, their best checkpoints."""

from collections.abc import Callable, Sequence

from transformer_jax.analysis.differing_settings import differing_settings, settings_table
from transformer_jax.analysis.document import Document, Picture, Section, Table
from transformer_jax.analysis.report_files import to_csv
from transformer_jax.analysis.run_summary import RunSummary

Value = float | int | None

# Heading in the tables, name in the CSV, how it is written, and where it comes from.
COLUMNS: tuple[tuple[str, str, str, Callable[[RunSummary], Value]], ...] = (
    ("chrF", "validation_chrf", "{:.2f}", lambda run: run.chrf),
    ("perplexity", "validation_perplexity", "{:.3f}", lambda run: run.perplexity),
    ("at update", "best_update", "{:,}", lambda run: run.best_update),
    ("updates", "updates", "{:,}", lambda run: run.updates),
    ("target tokens", "target_tokens", "{:,}", lambda run: run.target_tokens),
    ("parameters", "parameters", "{:,}", lambda run: run.parameters),
    ("tokens/s", "target_tokens_per_second", "{:,.0f}", lambda run: run.tokens_per_second),
    ("time", "seconds", "", lambda run: run.seconds),
)
MEANING = (
    "The score, chrF and perplexity are of the best validation, made after that update; perplexities compare "
    "only where the tokenizer is the same. Target tokens are all that were trained on; tokens/s, of the target, is the median "
    "of what was logged. Time is what goodput.json accounts for. The last columns, if any, are of whole splits, translated "
    "by the best checkpoint. An empty cell is not known, or not yet."
)

# What decides which text a validation scores; the text of a generated validation split depends on no seed.
SCORED_TEXT = frozenset(
    {
        "data.source",
        "data.directory",
        "data.name",
        "data.source_language",
        "data.target_language",
        "data.generated_words",
        "data.validation_split",
        "training.validation_sentences",
    }
)


def results_table(runs: Sequence[RunSummary]) -> Table:
    """A row for each run: the columns above, then BLEU and chrF of the best checkpoint on every split that was evaluated."""
    splits = _splits(runs)
    headings = ("run", _score_name(runs), *(column[0] for column in COLUMNS), *_split_headings(splits, "BLEU", "chrF"))
    rows = []
    for run in runs:
        score = "" if run.score is None else run.config.selection.text(run.score)
        values = (_written(form, read(run)) for _, _, form, read in COLUMNS)
        rows.append((run.name, score, *values, *_written_scores(run, splits)))
    return Table(headings, tuple(rows))


def _score_name(runs: Sequence[RunSummary]) -> str:
    """What the runs were selected by; runs of several tasks are not compared."""
    labels = {run.config.selection.label for run in runs}
    return labels.pop() if len(labels) == 1 else "score"


def run_report(runs: Sequence[RunSummary], curves: Picture | None) -> Document:
    """The whole report."""
    settings = differing_settings([run.config for run in runs])
    equal = "All settings are the same." if len(runs) > 1 else "There is one run, and nothing to differ from."
    shown = settings_table([run.name for run in runs], settings) if settings else equal
    paths = Table(
        ("run", "best checkpoint", "folder"),
        tuple((run.name, _written("{:,}", run.best_step), str(run.best_checkpoint or "none yet")) for run in runs),
        of_text=frozenset({0, 2}),
    )
    sections = [
        Section("Results", (results_table(runs), *different_text(runs), MEANING)),
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
    """A sentence, unless all runs were scored on the same text, as far as their settings tell."""
    differ = [key for key in differing_settings([run.config for run in runs]) if key in SCORED_TEXT]
    if not differ:
        return []
    return [
        f"The runs differ in {', '.join(differ)}: scores of different text do not compare, nor does their order here."
    ]


def damage(runs: Sequence[RunSummary]) -> list[str]:
    """A sentence about each checkpoint whose score cannot be read, so that nobody knows whether it is the best."""
    return [f"{run.name}: {folder} is damaged: its score cannot be read." for run in runs for folder in run.damaged]


def report_csv(runs: Sequence[RunSummary]) -> str:
    """A line for each run: its results in full, the settings that differ, the scores of splits, its folders."""
    settings = differing_settings([run.config for run in runs])
    splits = _splits(runs)
    keys = {run.config.selection.key.replace("/", "_") for run in runs}
    score = keys.pop() if len(keys) == 1 else "validation_score"
    headings = ["run", score, *(column[1] for column in COLUMNS), *_split_headings(splits, "bleu", "chrf"), *settings]
    rows = []
    for number, run in enumerate(runs):
        values = [run.score, *(read(run) for _, _, _, read in COLUMNS)]
        where = [run.best_checkpoint, run.folder]
        rows.append([run.name, *values, *_scores(run, splits), *(each[number] for each in settings.values()), *where])
    return to_csv([*headings, "best_checkpoint", "folder"], rows)


def duration(seconds: float) -> str:
    """``3:25:45``: hours, minutes and seconds."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}"


def _evaluations_table(runs: Sequence[RunSummary]) -> Table:
    """Every saved evaluation, whatever it was of."""
    rows = []
    for run in runs:
        for saved in run.evaluations:
            scores = [f"{score:.2f}" for score in (saved.bleu, saved.bleu_lowercase, saved.chrf)]
            rows.append((run.name, saved.split, saved.parameters, *scores, saved.file))
    headings = ("run", "split", "checkpoint", "BLEU", "BLEU lower-case", "chrF", "file")
    return Table(headings, tuple(rows), of_text=frozenset({0, 1, 6}))


def _splits(runs: Sequence[RunSummary]) -> list[str]:
    """The splits on which a best checkpoint was evaluated."""
    found = {saved.split for run in runs for saved in run.evaluations if run.scores_of_best(saved.split)}
    return sorted(found)


def _split_headings(splits: Sequence[str], bleu: str, chrf: str) -> list[str]:
    return [f"{split} {metric}" for split in splits for metric in (bleu, chrf)]


def _scores(run: RunSummary, splits: Sequence[str]) -> list[Value]:
    found = [run.scores_of_best(split) for split in splits]
    return [value for saved in found for value in ((saved.bleu, saved.chrf) if saved else (None, None))]


def _written_scores(run: RunSummary, splits: Sequence[str]) -> list[str]:
    return [_written("{:.2f}", value) for value in _scores(run, splits)]


def _written(form: str, value: Value) -> str:
    """Nothing where there is no value; without a form it is a time in seconds."""
    if value is None:
        return ""
    return form.format(value) if form else duration(value)
