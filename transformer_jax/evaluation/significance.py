"""Significance of the difference between two systems by sacreBLEU's paired tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from sacrebleu.metrics.base import Score, Signature
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from transformer_jax.errors import DataError

RESAMPLES = 1000


class Estimate(NamedTuple):
    """A score on all sentences, and its 95 % interval from resamples."""

    value: float
    lower: float
    upper: float


class SystemComparison(NamedTuple):
    """Two systems by one metric. ``difference`` is ``second - first``, ``p_value`` two-sided."""

    metric: str
    first: Estimate
    second: Estimate
    difference: Estimate
    p_value: float
    signature: str


class PairedScores(NamedTuple):
    """Functions that compare two systems.

    ``compare(first, second, references, resamples)`` tests the difference on all sentences, by one
    or several metrics. ``of_sentences(outputs, references)`` is the ``sentence_metric`` of single
    sentences, from 0 to 100.
    """

    compare: Callable[[Sequence[str], Sequence[str], Sequence[str], int], list[SystemComparison]]
    of_sentences: Callable[[Sequence[str], Sequence[str]], list[float]]
    sentence_metric: str


@dataclass(eq=False)
class Counted:
    """A metric for sacreBLEU's tests, which applies ``score`` to sums of counts over sentences.

    ``count`` returns the counts ``[sentences, counts]``.
    """

    name: str
    count: Callable[[Sequence[str], Sequence[str]], Any]
    score: Callable[[Any], float]
    rules: str = ""

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Any:
        return self.count(hypotheses, references[0])

    def _compute_score_from_stats(self, sums: Any) -> Score:
        return Score(self.name, self.score(sums))

    def _aggregate_and_compute(self, counts: Any) -> Score:
        return self._compute_score_from_stats(np.sum(counts, axis=0))

    def get_signature(self) -> Signature:
        signature = Signature({"num_refs": 1})
        signature.update("rules", self.rules)
        return signature


def compare_systems(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    resamples: int = RESAMPLES,
    tokenizer: str = "13a",
) -> list[SystemComparison]:
    """Compare two translations of the same sentences by BLEU and chrF. See ``paired_tests``."""
    metrics = {"BLEU": BLEU(tokenize=tokenizer, force=True), "chrF": CHRF()}
    return paired_tests(metrics, first, second, references, resamples)


def paired_tests(
    metrics: dict[str, Any], first: Sequence[str], second: Sequence[str], references: Sequence[str], resamples: int
) -> list[SystemComparison]:
    """Test two systems by each metric as ``sacrebleu --paired-ar`` does, with its seed.

    The seed is ``SACREBLEU_SEED``. The p-value is of approximate randomization (Riezler and Maxwell
    2005): how often outputs that are exchanged at random differ by more. It is at least the
    smallest p of a sign test on the sentences whose outputs differ, as exchanging equal outputs
    tells nothing. Intervals are of bootstrap resamples (Koehn 2004), the same for the second system
    and for the difference. Raises DataError when the numbers of lines differ or are 0.
    """
    if not len(first) == len(second) == len(references) or not references:
        raise DataError(f"{len(first)} and {len(second)} translations of {len(references)} references: nothing to pair")
    least = 2.0 ** (1 - sum(ours != theirs for ours, theirs in zip(first, second, strict=True)))
    comparisons = []
    for name, metric in metrics.items():
        both = {name: metric, "difference": _minus(metric, first, references)}
        systems: list[tuple[str, Sequence[str]]] = [("first", first), ("second", second)]
        signatures, scores = PairedTest(systems, both, [references], "ar", resamples, n_ar_confidence=resamples)()
        # The names of the systems, their results by the metric, and by the difference.
        _, results, (_, difference) = (cast("list[Any]", column) for column in scores.values())
        one, two, change = (Estimate(r.score, r.mean - r.ci, r.mean + r.ci) for r in (*results, difference))
        p_value, (signature, _) = min(max(results[1].p_value, least), 1.0), signatures.values()
        comparisons.append(SystemComparison(name, one, two, change, p_value, str(signature)))
    return comparisons


def _minus(metric: Any, baseline: Sequence[str], references: Sequence[str]) -> Counted:
    """Return a metric: the score minus the score of ``baseline``.

    sacreBLEU has no interval of a difference.
    """
    counts = metric._extract_corpus_statistics(baseline, [references])

    def count(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return np.hstack([metric._extract_corpus_statistics(hypotheses, [references]), counts])

    def score(sums: np.ndarray) -> float:
        ours, theirs = (metric._compute_score_from_stats(half.tolist()).score for half in np.split(sums, 2))
        return float(ours - theirs)

    return Counted("difference", count, score)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each sentence, from 0 to 100.

    BLEU is no measure of single sentences: few have a correct 4-gram.
    """
    metric = CHRF()
    pairs = zip(hypotheses, references, strict=True)
    return [metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs]
