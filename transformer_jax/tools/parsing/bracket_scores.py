"""Scores of parsers as EVALB computes them with the parameters of COLLINS.prm, and the comparison of two parsers."""

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
"""A constituent: its label, and the words from the second number to before the third, punctuation not counted."""


class BracketCounts(NamedTuple):
    """Counts of a sentence. Sums of them give the scores of a corpus; ``exact``, ``uncrossed`` are 0 or 1, ``sentences`` 1."""

    matched: int
    gold: int
    predicted: int
    crossing: int
    exact: int
    uncrossed: int
    sentences: int
    words: int


def brackets_of(tree: Tree, is_deleted: Sequence[bool]) -> list[Bracket]:
    """Return the constituents that count, innermost first; ``is_deleted`` says of each word whether it is left out."""
    found: list[Bracket] = []
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
            found.append((EQUAL.get(part.label, part.label), before[start], before[end]))
    return found


def bracket_counts(gold: Tree, predicted: Tree) -> BracketCounts:
    """Return the counts of one sentence; the parts of speech of ``gold`` say which words are punctuation.

    A bracket matches at most one other. Raises DataError when the trees have different words.
    """
    if without_escapes(gold.sentence) != without_escapes(predicted.sentence):
        raise DataError(f"trees of different sentences: {gold.sentence!r} and {predicted.sentence!r}")
    is_deleted = [leaf.label in DELETED for leaf in gold.leaves()]
    wanted, found = brackets_of(gold, is_deleted), brackets_of(predicted, is_deleted)
    matched = (Counter(wanted) & Counter(found)).total()
    spans = {(start, end) for _, start, end in wanted}
    crossing = sum(
        any(start < first < end < last or first < start < last < end for first, last in spans)
        for _, start, end in found
    )
    is_exact = matched == len(wanted) == len(found)
    return BracketCounts(
        matched, len(wanted), len(found), crossing, int(is_exact), int(not crossing), 1, len(is_deleted)
    )


class BracketScores(NamedTuple):
    """Labelled recall, precision, F1 and exact match in percent; crossing brackets a sentence, and sentences without any."""

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
    sentences = max(sentences, 1)
    return BracketScores(
        f1, precision, recall, 100 * exact / sentences, crossing / sentences, 100 * uncrossed / sentences
    )


def counts_of(gold: Sequence[Tree], predicted: Sequence[Tree]) -> np.ndarray:
    """``BracketCounts`` of each sentence, ``[sentences, counts]``; raises DataError unless there are equally many."""
    if len(gold) != len(predicted) or not gold:
        raise DataError(f"{len(predicted)} trees for {len(gold)} sentences: nothing to score")
    return np.array([bracket_counts(*pair) for pair in zip(gold, predicted, strict=True)])


def f1_by_length(counts: np.ndarray) -> dict[str, tuple[int, float]]:
    """Return the number of sentences and their F1 by length: 1-10, 11-20, 21-30, 31-40, over 40 words, and 1-40."""
    words, found = counts[:, -1], {}
    for low, high in [*zip((0, *LENGTHS), (*LENGTHS, np.inf), strict=True), (0, 40)]:
        chosen = counts[(words > low) & (words <= high)]
        name = f"over {low}" if high == np.inf else f"{low + 1}-{high}"
        if len(chosen):
            found[name] = len(chosen), scores_of(chosen.sum(axis=0)).f1
    return found


def sentence_f1(outputs: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the F1 of each tree, given as text."""
    return [scores_of(counts).f1 for counts in counts_of(trees_of_texts(references), trees_of_texts(outputs))]


def compare_parsers(
    first: Sequence[str], second: Sequence[str], references: Sequence[str], resamples: int = RESAMPLES
) -> list[SystemComparison]:
    """F1 of two parsers of the same sentences, and of their difference, by sacreBLEU's paired tests.

    Trees are given as text.
    """

    def count(outputs: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return counts_of(trees_of_texts(references), trees_of_texts(outputs))

    f1 = Counted("F1", count, lambda sums: scores_of(sums).f1, RULES)
    return paired_tests({"F1": f1}, first, second, references, resamples)
