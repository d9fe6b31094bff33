"""Two translations of the same text: both scores, whether chance explains the difference, and every sentence."""

from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.evaluation.significance import SystemComparison, compare_systems, sentence_chrf
from transformer_jax.tools.reports.translated_split import TranslatedSplit, require_saved_score


class SentenceComparison(NamedTuple):
    """A sentence, counted from 1, its two translations and the chrF of each."""

    number: int
    source: str
    reference: str
    first: str
    second: str
    first_chrf: float
    second_chrf: float

    @property
    def gain(self) -> float:
        """Difference of the second and the first."""
        return self.second_chrf - self.first_chrf


class Comparison(NamedTuple):
    """Two sides with their names, compared as corpora and sentence by sentence, in the order of the text."""

    names: tuple[str, str]
    sides: tuple[TranslatedSplit, TranslatedSplit]
    scores: list[SystemComparison]
    sentences: list[SentenceComparison]


def compare_sides(
    names: tuple[str, str],
    sides: tuple[TranslatedSplit, TranslatedSplit],
    resamples: int,
    seed: int,
    tokenizer: str = "13a",
) -> Comparison:
    """Compares translations of the same references; the sources shown are those of the first. ``tokenizer``: of BLEU.

    Raises DataError when translations or references have changed since the translations were scored.
    """
    sources, references = zip(*sides[0].chosen.pairs, strict=True)
    first, second = (side.saved.hypotheses for side in sides)
    scores = compare_systems(first, second, references, resamples, seed, tokenizer)
    bleu = scores[0]
    for side, estimate in zip(sides, (bleu.first, bleu.second), strict=True):
        require_saved_score(side, estimate.value, tokenizer)
    values = sentence_chrf(first, references), sentence_chrf(second, references)
    rows = zip(sources, references, first, second, *values, strict=True)
    return Comparison(
        names, sides, scores, [SentenceComparison(number, *row) for number, row in enumerate(rows, start=1)]
    )


def most_different(sentences: Sequence[SentenceComparison], count: int, sign: int) -> list[SentenceComparison]:
    """The ``count`` sentences most in favor of the second (``sign`` 1) or the first (-1), without ties."""
    favorable = [sentence for sentence in sentences if sign * sentence.gain > 0]
    return sorted(favorable, key=lambda sentence: (-sign * sentence.gain, sentence.number))[:count]
