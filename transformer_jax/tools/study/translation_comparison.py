"""Comparison of two translations of the same text: scores, significance of the difference, and sentences.

A side is the translations of a split by one checkpoint, read from disk or computed.
"""

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
from transformer_jax.tools.pictures.attention_maps import draw_attention
from transformer_jax.tools.study.comparability import differing_settings
from transformer_jax.tools.study.document import Cell, Document, Picture, Section, Table, to_csv
from transformer_jax.tools.study.run_summary import RunSummary
from transformer_jax.tools.study.runs_table import settings_table

MEANING = (
    "The difference is the second minus the first. In brackets: 95 % of bootstrap resamples (Koehn 2004: as many sentences, "
    "drawn with replacement). p: the probability of a difference at least as large, in either direction, between two equally "
    "good systems (sacreBLEU's approximate randomization, --paired-ar); below 0.05 chance is an unlikely explanation. The test "
    "covers these sentences and these two runs: the same training with another seed may well score differently."
)
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
    """Return the task of a run; raise ConfigError where it has no outputs to compare."""
    problem = f"a run of task={config.task} has no outputs to compare (see report)"
    task: ScoresPairs = task_that(ScoresPairs, config, "A B", problem)
    return task


@dataclass(frozen=True)
class Side:
    """A split of a run's data (raw pairs), and the evaluation of it to compare.

    ``stem`` is the path of the evaluation without its suffix. It is by checkpoint ``step``, or by
    the mean of the last ``average`` checkpoints up to it, decoded with ``config``. ``saved``: its
    content, None if it has not been read.
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
    """Return the evaluation in an ``evaluation-*.json`` or ``.txt`` of a run directory; ``config`` names the data.

    The references are the split's, or in the file if the text is no split of the data. Raises
    DataError if a file is missing or damaged, or has several references.
    """
    saved = read_evaluation(stem_of(file))
    split = str(saved.report["split"])
    if "references" not in saved.report:
        return Side(saved.stem, config, split, task_that_scores_pairs(config).scored_pairs(config, split), saved=saved)
    references = saved.report["references"]
    if len(references) > 1:
        raise DataError(f"{file}: was scored against {len(references)} references; compare takes one reference")
    pairs = [SentencePair(*pair) for pair in zip(saved.report["sources"], references[0], strict=True)]
    return Side(saved.stem, config, split, pairs, saved=saved)


def choose_run(workdir: Path, config: ExperimentConfig, split: str, checkpoint: str, average: int = 1) -> Side:
    """Return a split decoded with ``config`` by ``checkpoint`` (``best``, ``last`` or a step), or
    by the mean of the last ``average``.

    The metrics of ``config`` are ignored. Raises CheckpointError if there is no such checkpoint or
    too few to average, DataError if the data has no such split.
    """
    step = steps_to_average(RunDirectory(workdir), checkpoint, average)[-1]
    name = config.data.split_name(split)
    trained = load_run_config(workdir)
    config = replace(config, evaluation=trained.evaluation)
    pairs = task_that_scores_pairs(config).scored_pairs(config, name)
    stem = stem_of_text(workdir / evaluation_stem(name, step, average, trained, config), {"text": digest_of(pairs)})
    return Side(stem, config, name, pairs, step, average, find_evaluation(stem, config))


def require_same_references(first: Side, second: Side) -> None:
    """Raise DataError, which shows the first line that differs, unless both sides have the same references."""
    which = f"{first.stem} and {second.stem}"
    if first.split != second.split:
        raise DataError(f"{which} are of different splits, {first.split!r} and {second.split!r}; compare one split")
    problem = ""
    for number, (ours, theirs) in enumerate(zip(first.pairs, second.pairs, strict=False), start=1):
        if ours.target != theirs.target and not problem:
            problem = f"different references in line {number}, {ours.target[:80]!r} and {theirs.target[:80]!r}"
    if len(first.pairs) != len(second.pairs):
        problem = problem or f"{len(first.pairs):,} and {len(second.pairs):,} references"
    if problem:
        raise DataError(f"{which} have {problem}; compare runs that translate the same text")


def translated(side: Side) -> Side:
    """Return the side with the translations that evaluate saved; otherwise evaluates, says so, and saves as evaluate does.

    Raises DataError if their number is wrong, ConfigError if the folder is not writable.
    """
    workdir, saved = side.stem.parent, side.saved
    if saved is None:
        remark = f"{workdir}: translating {side.split} with checkpoint {side.step} ..."
        print(remark, file=sys.stderr, flush=True)
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
    """Return the report on two sides with the same references, the scores first, and tables of
    scores and sentences as CSV by name.

    At most ``examples`` sentences in favor of each side; sources are of the first. Raises DataError
    where a side has another score than evaluate saved with it.
    """
    sources, references = zip(*sides[0].pairs, strict=True)
    first, second = (side.evaluation.hypotheses for side in sides)
    scores = paired.compare(first, second, references, resamples)
    for each in scores:
        for side, now in zip(sides, (each.first.value, each.second.value), strict=True):
            _require_saved_score(side, each, now)
    table = _scores_table(names, scores)
    signatures = "; ".join(f"{each.metric} {each.signature}" for each in scores)
    verdicts = (
        f"{each.metric}: {names[each.difference.value > 0]} is better, and chance is an unlikely explanation."
        if each.p_value < UNLIKELY
        else f"{each.metric}: chance may explain the difference."
        for each in scores
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
    signed = Table(("metric", "signature"), tuple((each.metric, each.signature) for each in scores))
    tables = {"compare.csv": to_csv(table, signed), "compare-sentences.csv": to_csv(Table(headings, tuple(sentences)))}
    return Document(f"{names[0]} and {names[1]} on {sides[0].split}", sections), tables


def _require_saved_score(side: Side, scored: SystemComparison, now: float) -> None:
    """Raise DataError unless evaluate saved the same score; BLEU of another tokenizer is not compared."""
    report, name = side.evaluation.report, scored.metric.lower()
    tokenizer = next((part for part in scored.signature.split("|") if part.startswith("tok:")), "")
    for before in (report["scores"].get(name), report["metrics"].get(name)):
        if before is not None and tokenizer in signature_of(report) and abs(before - now) > SAME_SCORE:
            problem = f"had {scored.metric} {before:.2f} when it was written and has {now:.2f} now"
            raise DataError(f"{side.stem}: {problem}: it or the data changed; run evaluate again")


def _scores_table(names: Sequence[str], scores: Sequence[SystemComparison]) -> Table:
    rows = []
    for each in scores:
        estimates = Cell.interval(*each.first), Cell.interval(*each.second), Cell.interval(*each.difference, 2, "+")
        rows.append((each.metric, *estimates, Cell.of(each.p_value, "{:.3f}")))
    headings = map(Cell.of_interval, (*names, "difference"))
    return Table((Cell("", "metric"), *headings, Cell("p", "p_value")), tuple(rows))


def _examples(
    names: Sequence[str], metric: str, sentences: Sequence[tuple[Any, ...]], sign: int, count: int
) -> Section:
    """Return the ``count`` sentences most in favor of the second side (``sign`` 1) or the first (-1)."""
    name, favorable = names[sign > 0], [each for each in sentences if sign * each[-1] > 0]
    favorable.sort(key=lambda each: -sign * each[-1])
    tables = [
        Table(
            (f"line {number:,}", metric, f"difference {gain:+.1f}"),
            (
                ("source", "", source),
                ("reference", "", reference),
                *zip(names, (f"{value:.1f}" for value in values), outputs, strict=True),
            ),
            of_text=frozenset({0, 2}),
        )
        for number, source, reference, *outputs, values, gain in (
            (*each[:5], each[5:7], each[7]) for each in favorable[:count]
        )
    ]
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

    None unless evaluate saved translations of a split by the best checkpoint of a run. ``runs``: the best first.
    """
    sides = {run.name: side for run in runs if (side := _saved(run))}
    best = next((run for run in runs if run.name in sides), None)
    if best is None:
        return None
    first = sides[best.name]
    rows = []
    for number, pair in enumerate(first.pairs[:SHOWN]):
        rows += [(number + 1, "source", pair.source), ("", "reference", pair.target)]
        rows += [
            ("", name, side.evaluation.hypotheses[number]) for name, side in sides.items() if side.pairs == first.pairs
        ]
    table = Table(("sentence", "", "text"), tuple(rows), frozenset({0, 1, 2}))
    words = f"The first sentences of {first.split}, as evaluate saved them with the best checkpoint of each run."
    source, target = first.pairs[0].source, first.evaluation.hypotheses[0]
    print(f"{best.name}: drawing its attention to a sentence ...", file=sys.stderr, flush=True)
    try:
        trained = open_trained(ChosenRun(str(best.folder), best.config, str(best.best_step)))
        read = trained.task.attention_of(trained.params, source, target)
    except (ConfigError, DataError) as error:
        return Section("Sentences", (words, table, f"No attention is drawn: {error}."))
    weights, rows_of_picture, columns, _ = next(iter(read.kinds.values()))
    draw_attention(weights, rows_of_picture, columns, picture, title=read.title)
    alternative = f"Attention of {best.name}: {source} - {target}"
    return Section("Sentences", (words, table, Picture(picture.name, picture.read_bytes(), alternative)))


def _saved(run: RunSummary) -> Side | None:
    """Return the translations of the best checkpoint that evaluate saved; None if there are none that can be read."""
    for file, report in run.evaluations.items():
        name = f"evaluation-{report['split'].replace('/', '-')}-{run.best_step}.json"
        if file == name and (run.folder / name).with_suffix(".txt").is_file():
            try:
                side = choose_file(run.folder / name, run.config)
            except (ConfigError, DataError):
                return None
            return side if len(side.pairs) == len(side.evaluation.hypotheses) > 0 else None
    return None
