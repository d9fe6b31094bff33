"""A lexicon learned from sentence pairs: the words of each side, and their translations.

IBM model 1 (Brown et al. 1993). Learned from 2,000 pairs of Multi30k, Tatoeba, Tanaka or Python
documentation, it gives 96 to 99.9 % of other pairs a higher score than the same source with the
target of another pair.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import regex

from transformer_jax.data.orders import joined_ranges
from transformer_jax.data.sentence_pairs import SentencePair

# Characters are the words of scripts without spaces.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_WORD = regex.compile(rf"[[\p{{L}}\p{{M}}]--[{_UNSPACED}]]+|[{_UNSPACED}]|\p{{N}}+", regex.V1)
# Of a line, only its beginning is read: characters, then words.
MAX_CHARACTERS = 250
WORDS_OF_LINE = 30
# Iterations of model 1, and of the leading direction.
ITERATIONS = 4
POWER_ITERATIONS = 30
# Weight of the probability of a word without its source.
UNIGRAM_WEIGHT = 0.1


class LineWords(NamedTuple):
    """The distinct words of lines: ``ids`` in order, -1 if unknown, and their number by line."""

    ids: np.ndarray
    counts: np.ndarray

    @property
    def lines(self) -> np.ndarray:
        """The line of each word."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def without_unknown(self) -> "LineWords":
        is_in_vocabulary = self.ids >= 0
        return LineWords(
            self.ids[is_in_vocabulary], np.bincount(self.lines[is_in_vocabulary], minlength=len(self.counts))
        )

    def of_lines(self, lines: np.ndarray) -> "LineWords":
        """Return the words of some lines, in their order."""
        starts = np.cumsum(self.counts) - self.counts
        counts = self.counts[lines]
        return LineWords(self.ids[joined_ranges(starts[lines], counts)], counts)


class Lexicon:
    """Words and translations of some pairs, with one vocabulary for both sides."""

    def __init__(self, pairs: Sequence[SentencePair]) -> None:
        self._vocabulary: dict[str, int] = {}
        texts = [[_words(pair[side]) for pair in pairs] for side in (0, 1)]
        for word in chain.from_iterable(chain(*texts)):
            self._vocabulary.setdefault(word, len(self._vocabulary))
        size, sides = max(len(self._vocabulary), 1), [self._encoded(side) for side in texts]
        self._side_counts = np.array([np.bincount(side.ids, minlength=size) for side in sides], float)
        self._learn(*sides)

    @property
    def overlap(self) -> float:
        """The share of words that both sides have, from 0 to 1."""
        return _overlap(self._side_counts)

    def words(self, texts: Sequence[str]) -> LineWords:
        """Return the distinct words of each line, the first ``WORDS_OF_LINE``."""
        return self._encoded([_words(text) for text in texts])

    def _encoded(self, lines: Sequence[Iterable[str]]) -> LineWords:
        of_lines = [[self._vocabulary.get(word, -1) for word in line] for line in lines]
        counts = np.array([*map(len, of_lines)], np.int64)
        return LineWords(np.fromiter(chain.from_iterable(of_lines), np.int64, int(counts.sum())), counts)

    def unknown(self, words: LineWords, side: int) -> float:
        """Return the share of words that a side of the lexicon lacks."""
        if not len(words.ids):
            return 0.0
        return float(np.mean((words.ids < 0) | (self._side_counts[side][words.ids] == 0)))

    def orientation(self, sources: LineWords, targets: LineWords) -> np.ndarray:
        """Return the log-likelihood of pairs in this order minus the reverse order."""
        smoothed = self._side_counts + 0.5
        ratio = np.diff(np.log(smoothed / smoothed.sum(axis=1, keepdims=True)), axis=0)[0]
        ratios = np.zeros(len(sources.counts))
        for words, sign in ((sources.without_unknown(), -1), (targets.without_unknown(), 1)):
            ratios += sign * np.bincount(words.lines, ratio[words.ids], minlength=len(ratios))
        return ratios

    def scores(self, sources: LineWords, targets: LineWords) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of log(p(word | source) / p(word)) over known words, and their number."""
        sources, targets = sources.without_unknown(), targets.without_unknown()
        source, target, of_target = _links(sources, targets)
        keys = source * len(self._unigrams) + target
        index = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        best = np.zeros(len(targets.ids))
        if len(self._keys):
            np.maximum.at(best, of_target, np.where(self._keys[index] == keys, self._probabilities[index], 0.0))
        unigrams = self._unigrams[targets.ids]
        gains = np.log((1 - UNIGRAM_WEIGHT) * best / unigrams + UNIGRAM_WEIGHT)
        sums = np.bincount(targets.lines, gains, minlength=len(targets.counts))
        return sums / np.maximum(targets.counts, 1), targets.counts

    def _learn(self, sources: LineWords, targets: LineWords) -> None:
        size = self._side_counts.shape[1]
        source, target, of_target = _links(sources, targets)
        self._keys, link = np.unique(source * size + target, return_inverse=True)
        sources_of_keys = self._keys // size
        self._probabilities = np.ones(len(self._keys))
        for _ in range(ITERATIONS if len(self._keys) else 0):
            posteriors = self._probabilities[link]
            posteriors /= np.bincount(of_target, posteriors)[of_target]
            counts = np.bincount(link, posteriors, len(self._keys))
            self._probabilities = counts / np.bincount(sources_of_keys, counts)[sources_of_keys]
        unigrams = self._side_counts[1] + 0.5
        self._unigrams = unigrams / unigrams.sum()


def reversed_lines(pairs: Sequence[SentencePair], frequent: int = 100) -> tuple[np.ndarray, float, float]:
    """Return which pairs have the rarer order of sides, an overlap and a coverage.

    The last two are of the sides in the usual order: the overlap of their ``frequent`` words, and
    the mean number of these in a line. The leading direction of the
    differences in frequent words between the sides of a pair separates two languages.
    """
    sides = [[_words(pair[side]) for pair in pairs] for side in (0, 1)]
    counted = Counter(word for side in sides for line in side for word in line)
    column = {word: index for index, (word, _) in enumerate(counted.most_common(frequent))}
    presence = np.zeros((2, len(pairs), max(len(column), 1)), np.float32)
    for rows, side in zip(presence, sides, strict=True):
        for row, line in zip(rows, side, strict=True):
            row[[column[word] for word in line if word in column]] = 1
    difference = presence[0] - presence[1]
    products = difference.T @ difference
    direction = products.sum(axis=0)
    for _ in range(POWER_ITERATIONS):
        direction = products @ direction
        direction /= max(float(np.linalg.norm(direction)), 1e-9)
    along = difference @ direction
    is_reversed = along < 0 if (along < 0).sum() <= (along > 0).sum() else along > 0
    in_order = np.where(is_reversed[:, None], presence[::-1], presence)
    in_lines = float(in_order.sum(axis=2).mean(axis=1).min())
    return is_reversed, _overlap(in_order.sum(axis=1)), in_lines


def _overlap(counts: np.ndarray) -> float:
    """Sum the smaller of two relative frequencies over words, from ``counts`` [2, words]."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return float(shares.min(axis=0).sum())


@lru_cache(maxsize=20_000)
def _words(text: str) -> tuple[str, ...]:
    """Return the distinct words. Several lexicons are learned from parts of the same lines."""
    return tuple(dict.fromkeys(_WORD.findall(text[:MAX_CHARACTERS].lower())[:WORDS_OF_LINE]))


def _links(sources: LineWords, targets: LineWords) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Link all words of a pair: source word, target word, index of the target word."""
    counts = np.repeat(sources.counts, targets.counts)
    starts = np.repeat(np.cumsum(sources.counts) - sources.counts, targets.counts)
    of_target = np.repeat(np.arange(len(targets.ids)), counts)
    return sources.ids[joined_ranges(starts, counts)], targets.ids[of_target], of_target
