"""Comparison of two translations of the same text: scores, significance of the difference, and sentences."""

from dataclasses import astuple
from typing import NamedTuple

from transformer_jax.config import DataError
from transformer_jax.evaluation.significance import Estimate, PairedScores, SystemComparison
from transformer_jax.tasks.saved_evaluations import signature_of
from transformer_jax.tools.reports.document import Document, Section, Table, to_csv
from transformer_jax.tools.reports.run_report import differing_settings, settings_table
from transformer_jax.tools.reports.translated_split import TranslatedSplit

MEANING = (
    "The difference is the second minus the first. In brackets: 95 % of bootstrap resamples (Koehn 2004: as many sentences, "
    "drawn with replacement). p: the probability of a difference at least as large, in either direction, between two equally "
    "good systems (sacreBLEU's approximate randomization, --paired-ar); below 0.05 chance is an unlikely explanation. The test "
    "covers these sentences and these two runs: the same training with another seed may well score differently."
)
UNLIKELY = 0.05
# Versions of sacreBLEU differ by less on the same translations and references.
SAME_SCORE = 0.01


class SentenceComparison(NamedTuple):
    """A sentence, its two outputs and their scores by ``Comparison.sentence_metric``; ``number`` counts from 1."""

    number: int
    source: str
    reference: str
    first: str
    second: str
    first_score: float
    second_score: float

    @property
    def gain(self) -> float:
        return self.second_score - self.first_score


class Comparison(NamedTuple):
    """Two sides with their names: corpus scores, and all sentences in the order of the text."""

    names: tuple[str, str]
    sides: tuple[TranslatedSplit, TranslatedSplit]
    scores: list[SystemComparison]
    sentences: list[SentenceComparison]
    sentence_metric: str

    @property
    def is_identical(self) -> bool:
        return all(sentence.first == sentence.second for sentence in self.sentences)


def compare_sides(
    names: tuple[str, str],
    sides: tuple[TranslatedSplit, TranslatedSplit],
    paired: PairedScores,
    resamples: int,
) -> Comparison:
    """Compares outputs for the same references; shows the sources of the first side.

    Raises DataError where a side has another score than evaluate saved with it.
    """
    sources, references = zip(*sides[0].chosen.pairs, strict=True)
    first, second = (side.saved.hypotheses for side in sides)
    scores = paired.compare(first, second, references, resamples)
    for each in scores:
        for side, now in zip(sides, (each.first.value, each.second.value), strict=True):
            _require_saved_score(side, each, now)
    values = paired.of_sentences(first, references), paired.of_sentences(second, references)
    rows = zip(sources, references, first, second, *values, strict=True)
    sentences = [SentenceComparison(number, *row) for number, row in enumerate(rows, start=1)]
    return Comparison(names, sides, scores, sentences, paired.sentence_metric)


def _require_saved_score(side: TranslatedSplit, scored: SystemComparison, now: float) -> None:
    """Raises DataError unless evaluate saved the same score; BLEU of another tokenizer is not compared."""
    report, name = side.saved.report, scored.metric.lower()
    tokenizer = next((part for part in scored.signature.split("|") if part.startswith("tok:")), "")
    for before in (report["scores"].get(name), report["metrics"].get(name)):
        if before is not None and tokenizer in signature_of(report) and abs(before - now) > SAME_SCORE:
            problem = (
                f"had {scored.metric} {before:.2f} when it was written and has {now:.2f} now: it or the data changed"
            )
            raise DataError(f"{side.saved.stem}: {problem}; run evaluate again")


def comparison_report(comparison: Comparison, examples: int) -> Document:
    """The whole report, with at most ``examples`` sentences in favor of each side."""
    names, sides = comparison.names, comparison.sides
    described = tuple((name, side.description()) for name, side in zip(names, sides, strict=True))
    settings = differing_settings([side.trained for side in sides])
    sections = (
        scores_section(comparison),
        *examples_sections(comparison, examples),
        Section("Settings that differ", (settings_table(names, settings) if settings else "None.",)),
        Section("Translations", (Table(("run", "made by"), described, of_text=frozenset({0, 1})),)),
    )
    return Document(f"{names[0]} and {names[1]} on {sides[0].chosen.split}", sections)


def scores_section(comparison: Comparison) -> Section:
    """The table of both metrics, their signatures, and the conclusion."""
    rows = tuple(
        (each.metric, _text(each.first), _text(each.second), _text(each.difference, "+"), f"{each.p_value:.3f}")
        for each in comparison.scores
    )
    table = Table(("", *comparison.names, "difference", "p"), rows)
    signatures = "; ".join(f"{each.metric} {each.signature}" for each in comparison.scores)
    if comparison.is_identical:
        return Section("Scores", (table, signatures, "The translations are identical."))
    verdicts = (
        f"{each.metric}: {comparison.names[each.difference.value > 0]} is better, and chance is an unlikely explanation."
        if each.p_value < UNLIKELY
        else f"{each.metric}: chance may explain the difference."
        for each in comparison.scores
    )
    return Section("Scores", (table, signatures, " ".join(verdicts), MEANING))


def examples_sections(comparison: Comparison, count: int) -> tuple[Section, ...]:
    """The ``count`` sentences most in favor of the second side, then of the first; empty if all translations are equal."""
    sections, metric = [], comparison.sentence_metric
    for sign in (1, -1) if not comparison.is_identical else ():
        name = comparison.names[sign > 0]
        favorable = [each for each in comparison.sentences if sign * each.gain > 0]
        intro = f"{name} has the higher {metric} on {len(favorable):,} of {len(comparison.sentences):,} sentences."
        favorable.sort(key=lambda each: -sign * each.gain)
        examples = (_example(comparison.names, metric, each) for each in favorable[:count])
        sections.append(Section(f"Where {name} is better", (intro, *examples)))
    return tuple(sections)


def scores_csv(comparison: Comparison) -> str:
    """A line per metric, numbers in full precision."""
    columns = [f"{name} {field}" for name in (*comparison.names, "difference") for field in ("value", "lower", "upper")]
    rows = [
        [
            *(each.metric, *astuple(each.first), *astuple(each.second), *astuple(each.difference)),
            *(each.p_value, each.signature),
        ]
        for each in comparison.scores
    ]
    return to_csv(["metric", *columns, "p_value", "signature"], rows)


def sentences_csv(comparison: Comparison) -> str:
    """A line per sentence of the split."""
    (first, second), metric = comparison.names, comparison.sentence_metric
    headings = ["line", "source", "reference", first, second, f"{first} {metric}", f"{second} {metric}", "difference"]
    return to_csv(headings, [[*sentence, sentence.gain] for sentence in comparison.sentences])


def _example(names: tuple[str, str], metric: str, sentence: SentenceComparison) -> Table:
    rows = (
        ("source", "", sentence.source),
        ("reference", "", sentence.reference),
        (names[0], f"{sentence.first_score:.1f}", sentence.first),
        (names[1], f"{sentence.second_score:.1f}", sentence.second),
    )
    headings = (f"line {sentence.number:,}", metric, f"difference {sentence.gain:+.1f}")
    return Table(headings, rows, of_text=frozenset({0, 2}))


def _text(estimate: Estimate, sign: str = "") -> str:
    """``36.14 [34.42, 37.69]``."""
    return f"{estimate.value:{sign}.2f} [{estimate.lower:{sign}.2f}, {estimate.upper:{sign}.2f}]"
