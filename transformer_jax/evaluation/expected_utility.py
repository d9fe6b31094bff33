"""Expected utility of candidate translations, for minimum Bayes risk decoding (Eikema and Aziz 2020, section 6)."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams, extract_word_ngrams


class Utility(NamedTuple):
    """sacreBLEU's score of a sentence, in two parts: n-grams by order of a text, once, and the score of two texts from counts.

    ``statistics(hypothesis, reference, matches)``: of the counts of each order, for ``metric``.
    """

    metric: Metric
    ngrams: Callable[[str], Sequence[Counter]]
    statistics: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

    def score(self, *counts: np.ndarray) -> float:
        return float(self.metric._compute_score_from_stats(self.statistics(*counts).tolist()).score)


def utility_of(name: str, tokenizer: str) -> Utility:
    """``chrf``, or ``bleu`` with one of sacreBLEU's tokenizers, smoothed, up to the longest n-grams of a hypothesis."""
    if name == "chrf":
        chrf = CHRF()
        return Utility(
            chrf,
            lambda text: extract_all_char_ngrams(text, chrf.char_order),
            lambda *counts: np.stack(counts, axis=1).reshape(-1),
        )
    bleu = BLEU(tokenize=tokenizer, effective_order=True, force=True)

    def ngrams(text: str) -> list[Counter]:
        tokens = bleu._preprocess_segment(text).split()
        return [extract_word_ngrams(tokens, order) for order in range(1, bleu.max_ngram_order + 1)]

    return Utility(
        bleu,
        ngrams,
        lambda hypothesis, reference, matches: np.array([hypothesis[0], reference[0], *matches, *hypothesis]),
    )


def expected_utilities(texts: Sequence[str], utility: Utility) -> Counter[str]:
    """The mean utility of every distinct text, with each of ``texts`` as its reference, itself included."""
    times = Counter(texts)
    by_order = list(zip(*map(utility.ngrams, times), strict=True))
    matches = np.stack([_matches(each) for each in by_order], axis=2)
    counts = np.diagonal(matches).T
    scores = [
        [utility.score(counts[first], counts[second], matches[first, second]) for second in range(len(times))]
        for first in range(len(times))
    ]
    means = np.array(scores) @ np.array([*times.values()]) / len(texts)
    return Counter(dict(zip(times, means.tolist(), strict=True)))


def _matches(ngrams: Sequence[Counter]) -> np.ndarray:
    """How many n-grams of one order each pair of texts shares [N, N]."""
    columns = {ngram: column for column, ngram in enumerate(set().union(*ngrams))}
    counts = np.zeros((len(ngrams), len(columns)), np.int32)
    for row, of_text in enumerate(ngrams):
        counts[row, [columns[ngram] for ngram in of_text]] = list(of_text.values())
    return np.stack([np.minimum(of_text, counts).sum(axis=1) for of_text in counts])
