"""Scores of parsers as of EVALB with the parameters of COLLINS.prm, and comparisons of two."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.evaluation.significance import RESAMPLES, Counted, SystemComparison, paired_tests
from transformer_jax.tools.parsing.trees import ROOTS, Tree, trees_of_texts, without_escapes

DELETED = frozenset({",", ":", "``", "''", "."})
EQUAL = {"PRT": "ADVP"}
LENGTHS = (10, 20, 30, 40)
RULES = "EVALB, COLLINS.prm: without root and punctuation, ADVP = PRT"


Bracket = tuple[str, int, int]
"""A constituent: label, first word, and word after the last, without counting punctuation."""


class BracketCounts(NamedTuple):
    """Counts of a sentence, with ``exact`` and ``uncrossed`` 0 or 1. Their sums score a corpus."""

    matched: int
    gold: int
    predicted: int
    crossing: int
    exact: int
    uncrossed: int
    sentences: int
    words: int


def brackets_of(tree: Tree, is_deleted: Sequence[bool]) -> list[Bracket]:
    """Return the constituents that count, innermost first, without ``is_deleted`` words."""
    brackets: list[Bracket] = []
    before = np.concatenate([[0], np.cumsum(~np.asarray(is_deleted, bool))]).tolist()

    # A constituent comes twice, the second time with its start, after its words.
    end, stack = 0, [(tree, -1)]
    while stack:
        part, start = stack.pop()
        if part.word:
            end += 1
        elif start < 0:
            stack += [(part, end), *((child, -1) for child in reversed(part.children))]
        elif before[start] < before[end] and part.label not in ROOTS:
            brackets.append((EQUAL.get(part.label, part.label), before[start], before[end]))
    return brackets


def bracket_counts(gold: Tree, predicted: Tree) -> BracketCounts:
    """Return the counts of a sentence. The parts of speech of ``gold`` show its punctuation.

    A bracket matches at most one other. Raises DataError if the trees have different words.
    """
    if without_escapes(gold.sentence) != without_escapes(predicted.sentence):
        raise DataError(f"trees of different sentences: {gold.sentence!r} and {predicted.sentence!r}")
    is_deleted = [leaf.label in DELETED for leaf in gold.leaves()]
    right, guessed = brackets_of(gold, is_deleted), brackets_of(predicted, is_deleted)
    matched = (Counter(right) & Counter(guessed)).total()
    spans = {(start, end) for _, start, end in right}
    crossing = sum(
        any(start < first < end < last or first < start < last < end for first, last in spans)
        for _, start, end in guessed
    )
    is_exact = int(matched == len(right) == len(guessed))
    return BracketCounts(matched, len(right), len(guessed), crossing, is_exact, int(not crossing), 1, len(is_deleted))


class BracketScores(NamedTuple):
    """Labelled scores in percent, but ``crossing`` is the number of brackets a sentence."""

    f1: float
    precision: float
    recall: float
    exact_match: float
    crossing: float
    no_crossing: float


def scores_of(counts: np.ndarray) -> BracketScores:
    matched, gold, predicted, crossing, exact, uncrossed, sentences, _ = (float(count) for count in counts)
    precision, recall = 100 * matched / max(predicted, 1), 100 * matched / max(gold, 1)
    f1 = 200 * matched / max(gold + predicted, 1)
    means = np.array([100 * exact, crossing, 100 * uncrossed]) / max(sentences, 1)
    return BracketScores(f1, precision, recall, *means.tolist())


def counts_of(gold: Sequence[Tree], predicted: Sequence[Tree]) -> np.ndarray:
    """Return ``BracketCounts`` as an array ``[sentences, counts]``."""
    if len(gold) != len(predicted) or not gold:
        raise DataError(f"{len(predicted)} trees for {len(gold)} sentences: nothing to score")
    return np.array([bracket_counts(*pair) for pair in zip(gold, predicted, strict=True)])


def f1_by_length(counts: np.ndarray) -> dict[str, tuple[int, float]]:
    """Return sentences and F1 by words: 1-10, 11-20, 21-30, 31-40, over 40, and 1-40."""
    words, by_length = counts[:, -1], {}
    for low, high in [*zip((0, *LENGTHS), (*LENGTHS, np.inf), strict=True), (0, 40)]:
        group = counts[(words > low) & (words <= high)]
        name = f"over {low}" if high == np.inf else f"{low + 1}-{high}"
        if len(group):
            by_length[name] = len(group), scores_of(group.sum(axis=0)).f1
    return by_length


def sentence_f1(outputs: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the F1 of trees in texts."""
    return [scores_of(counts).f1 for counts in counts_of(trees_of_texts(references), trees_of_texts(outputs))]


def compare_parsers(
    first: Sequence[str], second: Sequence[str], references: Sequence[str], resamples: int = RESAMPLES
) -> list[SystemComparison]:
    """Compare the F1 of two parsers, whose trees are texts, by sacreBLEU's paired tests."""

    def count(outputs: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return counts_of(trees_of_texts(references), trees_of_texts(outputs))

    f1 = Counted("F1", count, lambda sums: scores_of(sums).f1, RULES)
    return paired_tests({"F1": f1}, first, second, references, resamples)
