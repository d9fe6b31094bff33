"""Significance of the difference between two systems: paired bootstrap resampling."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transformer_jax.config.errors import DataError

RESAMPLES = 1000
# The seed of ``sacrebleu --paired-bs``.
SEED = 12345


@dataclass(frozen=True)
class Estimate:
    """A score on all sentences, and its 95 % interval over resamples."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class SystemComparison:
    """Two systems by one metric, from 0 to 100; ``difference`` is ``second`` minus ``first``.

    ``p_value`` is the two-sided probability of a difference at least as large between equally good systems. ``signature`` is
    sacreBLEU's, with the resampling.
    """

    metric: str
    first: Estimate
    second: Estimate
    difference: Estimate
    p_value: float
    signature: str


def compare_systems(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    resamples: int = RESAMPLES,
    seed: int = SEED,
    tokenizer: str = "13a",
) -> list[SystemComparison]:
    """Compares two translations of the same sentences by BLEU and chrF with paired bootstrap resampling (Koehn 2004).

    A resample draws as many sentences as there are, with replacement, the same for both systems and metrics. Resamples and
    intervals are equal to ``sacrebleu --paired-bs``. The p-value is two-sided: how often a resampled difference is as far
    from the mean of all as the measured one is from 0 (Efron and Tibshirani 1993, chapter 16). sacreBLEU takes absolute
    values first; its p-value is at most half as large: below 0.05 for one in ten pairs of equally good systems, and 0.001 for
    a system compared with itself.

    Raises DataError when the numbers of lines differ or are 0.
    """
    if not len(first) == len(second) == len(references) or not references:
        raise DataError(f"{len(first)} and {len(second)} translations of {len(references)} references: nothing to pair")
    metrics: dict[str, Metric] = {"BLEU": BLEU(tokenize=tokenizer, force=True), "chrF": CHRF()}
    counted = {}
    for name, metric in metrics.items():
        counts = _counts(metric, first, references), _counts(metric, second, references)
        signature = metric.get_signature()
        signature.update("bs", resamples)
        signature.update("seed", seed)
        counted[name] = CountedSystems(*counts, partial(_score, metric), str(signature))
    return compare_counts(counted, resamples, seed)


class PairedScores(NamedTuple):
    """How two systems are compared.

    ``compare(first, second, references, resamples, seed)`` tests the difference on all sentences, by one or several metrics.
    ``of_sentences(outputs, references)`` is ``sentence_metric`` of each sentence, from 0 to 100.
    """

    compare: Callable[[Sequence[str], Sequence[str], Sequence[str], int, int], list[SystemComparison]]
    of_sentences: Callable[[Sequence[str], Sequence[str]], list[float]]
    sentence_metric: str


class CountedSystems(NamedTuple):
    """Counts of two systems, ``[sentences, counts]``, whose sums ``score`` turns into a score, and how they were counted."""

    first: np.ndarray
    second: np.ndarray
    score: Callable[[np.ndarray], float]
    signature: str


def compare_counts(
    counted: Mapping[str, CountedSystems], resamples: int = RESAMPLES, seed: int = SEED
) -> list[SystemComparison]:
    """Paired bootstrap resampling by each metric, with the same resamples; see ``compare_systems``."""
    drawn = {name: np.zeros((resamples, 2)) for name in counted}
    generator = np.random.default_rng(seed)
    (number,) = {len(counts) for each in counted.values() for counts in each[:2]}
    for resample in range(resamples):
        times = np.bincount(generator.choice(number, size=number, replace=True), minlength=number)
        for name, each in counted.items():
            drawn[name][resample] = each.score(times @ each.first), each.score(times @ each.second)
    found = []
    for name, each in counted.items():
        first, second = (each.score(counts.sum(axis=0)) for counts in each[:2])
        values, differences = drawn[name].T, drawn[name][:, 1] - drawn[name][:, 0]
        estimates = _estimate(first, values[0]), _estimate(second, values[1]), _estimate(second - first, differences)
        found.append(SystemComparison(name, *estimates, _p_value(second - first, differences, number), each.signature))
    return found


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """The chrF of each sentence, from 0 to 100. (BLEU is no measure of single sentences: few have a correct 4-gram.)"""
    metric = CHRF()
    return [_score(metric, each) for each in _counts(metric, hypotheses, references)]


def _estimate(value: float, drawn: np.ndarray) -> Estimate:
    """The interval leaves out the lowest and the highest 2.5 % of the resamples."""
    ordered, outside = np.sort(drawn), len(drawn) // 40
    return Estimate(value, lower=float(ordered[outside]), upper=float(ordered[-1 - outside]))


def _p_value(difference: float, drawn: np.ndarray, number: int) -> float:
    """The share of resamples at least as far from their mean; the data itself counts as one, so the share is never 0.

    At least the smallest p-value of a two-sided sign test on ``number`` sentences: all resamples of one sentence are equal.
    """
    as_far = np.abs(drawn - drawn.mean()) >= abs(difference)
    return max(float((as_far.sum() + 1) / (len(drawn) + 1)), 2.0 ** (1 - number))


def _counts(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Statistics of the metric, ``[sentences, counts]``; their sum gives the score of the corpus."""
    return np.array(metric._extract_corpus_statistics(list(hypotheses), [list(references)]), dtype=np.float64)


def _score(metric: Metric, counts: np.ndarray) -> float:
    return float(metric._compute_score_from_stats(counts.tolist()).score)
