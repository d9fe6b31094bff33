"""Comparison of two translations of a text: scores, significance of the difference, sentences."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from transformer_jax.config import ConfigError, DataError, ExperimentConfig, load_run_config
from transformer_jax.data.sentence_pairs import SentencePair, digest_of
from transformer_jax.evaluation.significance import PairedScores, SystemComparison
from transformer_jax.files.atomic_files import require_writable
from transformer_jax.run_directory.layout import ChosenRun, RunDirectory
from transformer_jax.run_directory.selection import steps_to_average
from transformer_jax.tasks.saved_evaluations import (
    SavedEvaluation,
    ScoredCheckpoint,
    evaluation_stem,
    find_evaluation,
    read_evaluation,
    save_evaluation,
    signature_of,
    stem_of,
    stem_of_text,
    whose_parameters,
)
from transformer_jax.tasks.task import task_that
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tools.study.comparability import differing_settings
from transformer_jax.tools.study.document import Cell, Document, Picture, Section, Table, to_csv
from transformer_jax.tools.study.run_summary import RunSummary
from transformer_jax.tools.study.runs_table import settings_table

MEANING = (
    "The difference is the second minus the first. In brackets: 95 % of bootstrap resamples (Koehn 2004: as many sentences, "
    "drawn with replacement). p: the probability of a difference at least as large, in either direction, between two equally "
    "good systems (sacreBLEU's approximate randomization, --paired-ar). Below 0.05 chance is an unlikely explanation. The test "
    "covers these sentences and these two runs: the same training with another seed may well score differently."
)
# From this p on chance may explain a difference.
UNLIKELY = 0.05
# Versions of sacreBLEU differ by less on the same translations and references.
SAME_SCORE = 0.01
# Sentences in a report on several runs.
SHOWN = 3


@runtime_checkable
class ScoresPairs(Protocol):
    """A task whose outputs can be compared with the outputs of another system."""

    @staticmethod
    def scored_pairs(config: ExperimentConfig, split: str) -> list[SentencePair]:
        """Return the inputs of a split, and the references that outputs are scored against."""

    @staticmethod
    def paired_scores(config: ExperimentConfig) -> PairedScores:
        """Return the scores and tests of two systems."""


def task_that_scores_pairs(config: ExperimentConfig) -> ScoresPairs:
    """Return the task of a run, which must have outputs to compare."""
    problem = f"a run of task={config.task} has no outputs to compare (see report)"
    task: ScoresPairs = task_that(ScoresPairs, config, "A B", problem)
    return task


@dataclass(frozen=True)
class Side:
    """The translations of a split by one checkpoint, read from disk or yet to be computed.

    Args:
        stem: the path of the evaluation, without its suffix.
        config: the settings that decode.
        pairs: the raw pairs of the split.
        step: the checkpoint, or the last of ``average`` checkpoints to average.
        saved: the evaluation, None if it has not been read.
    """

    stem: Path
    config: ExperimentConfig
    split: str
    pairs: list[SentencePair]
    step: int = 0
    average: int = 1
    saved: SavedEvaluation | None = None

    @property
    def evaluation(self) -> SavedEvaluation:
        assert self.saved is not None
        return self.saved


def choose_file(file: Path, config: ExperimentConfig) -> Side:
    """Return the evaluation in an ``evaluation-*.json`` or ``.txt`` of a run directory.

    The references are the split's in the data of ``config``, or in the file if the text is no
    split. Raises DataError if a file is missing or damaged, or has several references.
    """
    saved = read_evaluation(stem_of(file))
    split = str(saved.report["split"])
    if "references" not in saved.report:
        return Side(saved.stem, config, split, task_that_scores_pairs(config).scored_pairs(config, split), saved=saved)
    references = saved.report["references"]
    if len(references) > 1:
        raise DataError(f"{file}: was scored against {len(references)} references, and compare takes one reference")
    pairs = [SentencePair(*pair) for pair in zip(saved.report["sources"], references[0], strict=True)]
    return Side(saved.stem, config, split, pairs, saved=saved)


def choose_run(workdir: Path, config: ExperimentConfig, split: str, checkpoint: str, average: int = 1) -> Side:
    """Return a split, decoded with ``config`` by a checkpoint or the mean of the last ``average``.

    The metrics of ``config`` are ignored. Raises CheckpointError if there is no such ``checkpoint``
    (``best``, ``last`` or a step) or too few to average, DataError if there is no such split.
    """
    step = steps_to_average(RunDirectory(workdir), checkpoint, average)[-1]
    name = config.data.split_name(split)
    trained = load_run_config(workdir)
    config = replace(config, evaluation=trained.evaluation)
    pairs = task_that_scores_pairs(config).scored_pairs(config, name)
    stem = stem_of_text(workdir / evaluation_stem(name, step, average, trained, config), {"text": digest_of(pairs)})
    return Side(stem, config, name, pairs, step, average, find_evaluation(stem, config))


def require_same_references(first: Side, second: Side) -> None:
    """Raise DataError, with the first line that differs, unless references are equal."""
    both = f"{first.stem} and {second.stem}"
    if first.split != second.split:
        raise DataError(f"{both} are of different splits, {first.split!r} and {second.split!r}; compare one split")
    remedy = "compare runs that translate the same text"
    for number, (ours, theirs) in enumerate(zip(first.pairs, second.pairs, strict=False), start=1):
        if ours.target != theirs.target:
            lines = f"{ours.target[:80]!r} and {theirs.target[:80]!r}"
            raise DataError(f"{both} have different references in line {number}, {lines}; {remedy}")
    if len(first.pairs) != len(second.pairs):
        raise DataError(f"{both} have {len(first.pairs):,} and {len(second.pairs):,} references; {remedy}")


def translated(side: Side) -> Side:
    """Return the side with saved translations. If there are none, evaluate, and save them."""
    workdir, saved = side.stem.parent, side.saved
    if saved is None:
        print(f"{workdir}: translating {side.split} with checkpoint {side.step} ...", file=sys.stderr, flush=True)
        require_writable(workdir, "A B")
        trained = open_trained(ChosenRun(str(workdir), side.config, str(side.step)), average=side.average)
        scored = ScoredCheckpoint(trained.evaluate(side.split), trained.steps[-1], len(trained.steps))
        saved = save_evaluation(side.stem, scored)
    if len(saved.hypotheses) != len(side.pairs):
        problem = f"{len(saved.hypotheses):,} translations, but {side.split!r} has {len(side.pairs):,} sentences"
        raise DataError(f"{saved.stem}.txt: {problem}; run evaluate again")
    return replace(side, saved=saved)


def comparison_report(
    names: Sequence[str], sides: Sequence[Side], paired: PairedScores, resamples: int, examples: int
) -> tuple[Document, dict[str, str]]:
    """Return the report on two sides with the same references, the scores first, and CSV by name.

    Shows at most ``examples`` sentences in favor of a side. Raises DataError if a score is not the
    one that evaluate saved.
    """
    sources, references = zip(*sides[0].pairs, strict=True)
    first, second = (side.evaluation.hypotheses for side in sides)
    scores = paired.compare(first, second, references, resamples)
    for score in scores:
        for side, now in zip(sides, (score.first.value, score.second.value), strict=True):
            _require_saved_score(side, score, now)
    table = _scores_table(names, scores)
    signatures = "; ".join(f"{score.metric} {score.signature}" for score in scores)
    verdicts = (
        f"{score.metric}: {names[score.difference.value > 0]} is better, and chance is an unlikely explanation."
        if score.p_value < UNLIKELY
        else f"{score.metric}: chance may explain the difference."
        for score in scores
    )
    words = (" ".join(verdicts), MEANING) if first != second else ("The translations are identical.",)
    metric, values = paired.sentence_metric, [paired.of_sentences(lines, references) for lines in (first, second)]
    headings = ("line", "source", "reference", *names, *(f"{name} {metric}" for name in names), "difference")
    sentences = [
        (number, *row, row[-1] - row[-2])
        for number, row in enumerate(zip(sources, references, first, second, *values, strict=True), start=1)
    ]
    settings = differing_settings([load_run_config(side.stem.parent) for side in sides])
    described = tuple(zip(names, map(_description, sides), strict=True))
    sections = (
        Section("Scores", (table, signatures, *words)),
        *(_examples(names, metric, sentences, sign, examples) for sign in (1, -1) if first != second),
        Section("Settings that differ", (settings_table(names, settings) if settings else "None.",)),
        Section("Translations", (Table(("run", "made by"), described, of_text=frozenset({0, 1})),)),
    )
    signed = Table(("metric", "signature"), tuple((score.metric, score.signature) for score in scores))
    tables = {"compare.csv": to_csv(table, signed), "compare-sentences.csv": to_csv(Table(headings, tuple(sentences)))}
    return Document(f"{names[0]} and {names[1]} on {sides[0].split}", sections), tables


def _require_saved_score(side: Side, scored: SystemComparison, now: float) -> None:
    """Raise DataError unless evaluate saved the same score with this tokenizer, or none."""
    report, name = side.evaluation.report, scored.metric.lower()
    tokenizer = next((part for part in scored.signature.split("|") if part.startswith("tok:")), "")
    for before in (report["scores"].get(name), report["metrics"].get(name)):
        if before is not None and tokenizer in signature_of(report) and abs(before - now) > SAME_SCORE:
            problem = f"had {scored.metric} {before:.2f} when it was written and has {now:.2f} now"
            raise DataError(f"{side.stem}: {problem}, since it or the data changed; run evaluate again")


def _scores_table(names: Sequence[str], scores: Sequence[SystemComparison]) -> Table:
    rows = []
    for score in scores:
        estimates = Cell.interval(*score.first), Cell.interval(*score.second), Cell.interval(*score.difference, 2, "+")
        rows.append((score.metric, *estimates, Cell.of(score.p_value, "{:.3f}")))
    headings = map(Cell.of_interval, (*names, "difference"))
    return Table((Cell("", "metric"), *headings, Cell("p", "p_value")), tuple(rows))


def _examples(
    names: Sequence[str], metric: str, sentences: Sequence[tuple[Any, ...]], sign: int, count: int
) -> Section:
    """Return ``count`` sentences most in favor of the second side (``sign`` 1) or the first."""
    name = names[sign > 0]
    favorable = sorted((row for row in sentences if sign * row[-1] > 0), key=lambda row: -sign * row[-1])
    tables = []
    for number, source, reference, first, second, *values, gain in favorable[:count]:
        outputs = zip(names, (f"{value:.1f}" for value in values), (first, second), strict=True)
        rows = (("source", "", source), ("reference", "", reference), *outputs)
        tables.append(Table((f"line {number:,}", metric, f"difference {gain:+.1f}"), rows, frozenset({0, 2})))
    words = f"{name} has the higher {metric} on {len(favorable):,} of {len(sentences):,} sentences."
    return Section(f"Where {name} is better", (words, *tables))


def _description(side: Side) -> str:
    report, decoding = side.evaluation.report, side.evaluation.report["decoding"]
    search = f"beam {decoding['beam_width']}, length penalty {decoding['length_penalty']:g}"
    if decoding.get("search", "beam") != "beam":
        search += f", search {decoding['search']}"
    return f"checkpoint {whose_parameters(report)}; {search}; {side.stem!s}.txt"


def sentences_of(runs: Sequence[RunSummary], picture: Path) -> Section | None:
    """Return translations of three sentences, and draw the attention of the best run to the first.

    Returns None unless evaluate saved translations by the best checkpoint of a run. The best of
    ``runs`` is the first.
    """
    sides = {run.name: side for run in runs if (side := _saved(run))}
    best = next((run for run in runs if run.name in sides), None)
    if best is None:
        return None
    first = sides[best.name]
    outputs = {name: side.evaluation.hypotheses for name, side in sides.items() if side.pairs == first.pairs}
    rows = []
    for number, pair in enumerate(first.pairs[:SHOWN]):
        rows += [(number + 1, "source", pair.source), ("", "reference", pair.target)]
        rows += [("", name, hypotheses[number]) for name, hypotheses in outputs.items()]
    table = Table(("sentence", "", "text"), tuple(rows), frozenset({0, 1, 2}))
    words = f"The first sentences of {first.split}, as evaluate saved them with the best checkpoints."
    source, target = first.pairs[0].source, first.evaluation.hypotheses[0]
    print(f"{best.name}: drawing its attention to a sentence ...", file=sys.stderr, flush=True)
    try:
        trained = open_trained(ChosenRun(str(best.folder), best.config, str(best.best_step)))
        read = trained.task.attention_of(trained.params, source, target)
    except (ConfigError, DataError) as error:
        return Section("Sentences", (words, table, f"No attention is drawn: {error}."))
    if not read.layers:
        return Section("Sentences", (words, table, f"{best.name} has no attention to draw."))
    read.draw(picture)
    alternative = f"Attention of {best.name}: {source} - {target}"
    return Section("Sentences", (words, table, Picture(picture.name, picture.read_bytes(), alternative)))


def _saved(run: RunSummary) -> Side | None:
    """Return the translations by the best checkpoint that evaluate saved, if they can be read."""
    for file, report in run.evaluations.items():
        name = f"evaluation-{report['split'].replace('/', '-')}-{run.best_step}.json"
        if file == name and (run.folder / name).with_suffix(".txt").is_file():
            try:
                side = choose_file(run.folder / name, run.config)
            except (ConfigError, DataError):
                return None
            return side if len(side.pairs) == len(side.evaluation.hypotheses) > 0 else None
    return None
