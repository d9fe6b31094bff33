"""Significance of the difference between two systems: sacreBLEU's paired tests, also for counts that it does not have."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from sacrebleu.metrics.base import Score, Signature
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from transformer_jax.errors import DataError

RESAMPLES = 1000


class Estimate(NamedTuple):
    """A score on all sentences, and its 95 % interval: the mean over resamples, plus and minus half the interval's width."""

    value: float
    lower: float
    upper: float


class SystemComparison(NamedTuple):
    """Two systems by one metric, from 0 to 100; ``difference`` is ``second`` minus ``first``, ``p_value`` is two-sided."""

    metric: str
    first: Estimate
    second: Estimate
    difference: Estimate
    p_value: float
    signature: str


class PairedScores(NamedTuple):
    """How two systems are compared.

    ``compare(first, second, references, resamples)`` tests the difference on all sentences, by one
    or several metrics. ``of_sentences(outputs, references)`` is ``sentence_metric`` of each
    sentence, from 0 to 100.
    """

    compare: Callable[[Sequence[str], Sequence[str], Sequence[str], int], list[SystemComparison]]
    of_sentences: Callable[[Sequence[str], Sequence[str]], list[float]]
    sentence_metric: str


class Counted:
    """A metric for sacreBLEU's tests: ``score`` of the sums of ``count(hypotheses, references)``, ``[sentences, counts]``."""

    def __init__(
        self,
        name: str,
        count: Callable[[Sequence[str], Sequence[str]], Any],
        score: Callable[[Any], float],
        rules: str = "",
    ) -> None:
        self.name, self._count, self._score, self._rules = name, count, score, rules

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Any:
        return self._count(hypotheses, references[0])

    def _compute_score_from_stats(self, sums: Any) -> Score:
        return Score(self.name, self._score(sums))

    def _aggregate_and_compute(self, counts: Any) -> Score:
        return self._compute_score_from_stats(np.sum(counts, axis=0))

    def get_signature(self) -> Signature:
        signature = Signature({"num_refs": 1})
        signature.update("rules", self._rules)
        return signature


def compare_systems(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    resamples: int = RESAMPLES,
    tokenizer: str = "13a",
) -> list[SystemComparison]:
    """Compare two translations of the same sentences by BLEU and chrF; see ``paired_tests``."""
    metrics = {"BLEU": BLEU(tokenize=tokenizer, force=True), "chrF": CHRF()}
    return paired_tests(metrics, first, second, references, resamples)


def paired_tests(
    metrics: dict[str, Any], first: Sequence[str], second: Sequence[str], references: Sequence[str], resamples: int
) -> list[SystemComparison]:
    """Tests two systems by each metric as ``sacrebleu --paired-ar`` does, with its seed (``SACREBLEU_SEED``).

    The p-value is of approximate randomization (Riezler and Maxwell 2005): how often outputs that
    are exchanged at random differ by more. It is at least the smallest p of a sign test on the
    sentences whose outputs differ, as exchanging equal outputs tells nothing. Intervals are of
    bootstrap resamples (Koehn 2004), the same for the second system and for the difference. Raises
    DataError when the numbers of lines differ or are 0.
    """
    if not len(first) == len(second) == len(references) or not references:
        raise DataError(f"{len(first)} and {len(second)} translations of {len(references)} references: nothing to pair")
    least = 2.0 ** (1 - sum(ours != theirs for ours, theirs in zip(first, second, strict=True)))
    found = []
    for name, metric in metrics.items():
        both = {name: metric, "difference": _minus(metric, first, references)}
        systems: list[tuple[str, Sequence[str]]] = [("first", first), ("second", second)]
        signatures, scores = PairedTest(systems, both, [references], "ar", resamples, n_ar_confidence=resamples)()
        # The names of the systems, and a result of each by the metric and by the difference.
        _, results, (_, difference) = (cast("list[Any]", each) for each in scores.values())
        one, two, change = (_estimate(each) for each in (*results, difference))
        p_value, (signature, _) = min(max(results[1].p_value, least), 1.0), signatures.values()
        found.append(SystemComparison(name, one, two, change, p_value, str(signature)))
    return found


def _minus(metric: Any, baseline: Sequence[str], references: Sequence[str]) -> Counted:
    """Return the score of a system minus the score of ``baseline``: sacreBLEU has no interval of a difference."""
    counts = metric._extract_corpus_statistics(baseline, [references])

    def count(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return np.hstack([metric._extract_corpus_statistics(hypotheses, [references]), counts])

    def score(sums: np.ndarray) -> float:
        ours, theirs = (metric._compute_score_from_stats(half.tolist()).score for half in np.split(sums, 2))
        return float(ours - theirs)

    return Counted("difference", count, score)


def _estimate(result: Any) -> Estimate:
    return Estimate(result.score, result.mean - result.ci, result.mean + result.ci)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each sentence, from 0 to 100. (BLEU is no measure of single sentences: few have a correct 4-gram.)"""
    metric = CHRF()
    return [
        metric.sentence_score(*pair).score for pair in zip(hypotheses, ([each] for each in references), strict=True)
    ]
