"""Detection of shifted lines in parallel text, by the lengths and the shared words of lines and their neighbors.

Translations have similar lengths (Gale and Church 1993), and share numbers, punctuation, names and cognates (Simard et al.
1992). The evidence for a lag is a sum of log-likelihood ratios: of the two lengths as correlated normal variables, and of the
overlap of words cut to four letters, compared with lines far apart. The most likely sequence of lags, with a cost for each
change, tells where the sides are shifted.
"""

import re
import unicodedata
import zlib
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.data.sentence_pairs import SentencePair

LAGS = range(-3, 4)
FAR_LAGS = (-17, -11, 11, 17)
# Lines that share a lag; lines over which lengths are standardized.
GROUP, NEIGHBORHOOD = 64, 256
# Log-likelihood that a change of lag, and a lag at the start, must gain; maximum evidence of one line.
PRICE_OF_CHANGE, PRICE_OF_START, MAX_OF_LINE = 30.0, 10.0, 3.0
MIN_CORRELATION, MAX_CORRELATION, MIN_OVERLAP = 0.05, 0.95, 0.05
# The mean of the largest of seven random correlations of a group is 0.16.
MIN_KNOWN = 0.2
_WORD = re.compile(r"\d+|[^\W\d_]+|[^\w\s]")
_MARKS = str.maketrans("\u3002\u3001\u300c\u300d\u201c\u201d\u201e\u00ab\u00bb\u2019", '.,""""""' + "\"'")
_BUCKETS = 24


class Stretch(NamedTuple):
    """From ``line`` (from 1), source line n translates target line n + ``lag``."""

    line: int
    lag: int


class LineShift(NamedTuple):
    """The stretches of constant lag, and the agreement of lengths (correlation) and words (standard deviations) of pairs."""

    stretches: list[Stretch]
    correlation: float
    overlap: float

    @property
    def is_shifted(self) -> bool:
        """Whether any stretch has a lag."""
        return any(stretch.lag for stretch in self.stretches)

    @property
    def is_known(self) -> bool:
        """Whether lengths or words of pairs agree."""
        return self.correlation >= MIN_KNOWN or self.overlap >= MIN_KNOWN

    def descriptions(self, source: str, target: str) -> list[str]:
        """A description of each shifted stretch, with the names of the files."""
        ends = [f"to {stretch.line - 1:,}" for stretch in self.stretches[1:]] + ["to the end"]
        return [
            f"from line {line:,} {end}, line n of {source} translates line n{lag:+} of {target}"
            for (line, lag), end in zip(self.stretches, ends, strict=True)
            if lag
        ]


def line_shift(lines: Sequence[int], pairs: Sequence[SentencePair]) -> LineShift:
    """The lags, from -3 to 3, of ``pairs`` at ascending ``lines`` (from 0): a corpus or blocks of it.

    The lag is 0 if there are fewer than ``GROUP`` pairs, or nothing shows that they are translations.
    """
    unshifted = [Stretch(1, 0)]
    if len(pairs) < GROUP:
        return LineShift(unshifted, 0.0, 0.0)
    number = np.asarray(lines)
    source, target = [pair.source for pair in pairs], [pair.target for pair in pairs]
    correlation, evidence = _length_evidence(number, source, target)
    overlap, more = _word_evidence(number, source, target)
    evidence += more
    found = LineShift(unshifted, correlation, overlap)
    if not found.is_known:
        return found
    starts = np.arange(0, len(number) - GROUP // 2, GROUP)
    path = _best_path(np.add.reduceat(evidence, starts, axis=1).T)
    stretches = [Stretch(int(number[0]) + 1, LAGS[path[0]])]
    for group in (np.flatnonzero(np.diff(path)) + 1).tolist():
        before, after = int(path[group - 1]), int(path[group])
        # The path may change a group too early or too late: the exact line is where the evidence for the first lag ends.
        first, last = int(starts[group - 1]), min(int(starts[group]) + GROUP, len(number))
        gain = np.cumsum(evidence[before, first:last] - evidence[after, first:last])
        index = min(first + int(np.argmax(gain)) + 1, len(number) - 1)
        stretches.append(Stretch(int(number[index]) + 1, LAGS[after]))
    return found._replace(stretches=stretches)


def _length_evidence(number: np.ndarray, source: list[str], target: list[str]) -> tuple[float, np.ndarray]:
    """The correlation of the log-lengths of pairs, and their evidence for each lag [lags, lines]."""
    ours, theirs = (_standardized(np.log([len(text) + 3 for text in side])) for side in (source, target))
    lagged = np.array([_at_lag(number, theirs, lag) for lag in LAGS])
    correlation = np.clip(_of_best_lag(ours * lagged), MIN_CORRELATION, MAX_CORRELATION)
    rest = 1 - correlation**2
    evidence = lagged**2 / 2 - (lagged - correlation * ours) ** 2 / (2 * rest) - np.log(rest) / 2
    return float(correlation), np.nan_to_num(np.clip(evidence, -MAX_OF_LINE, MAX_OF_LINE))


def _word_evidence(number: np.ndarray, source: list[str], target: list[str]) -> tuple[float, np.ndarray]:
    """How many more words pairs share than lines far apart, and the evidence for each lag [lags, lines]."""
    ours, theirs = (_words(number, side) for side in (source, target))
    mask = (1 << _BUCKETS) - 1
    words, counts = np.unique(np.concatenate([ours & mask, theirs & mask]), return_counts=True)
    weights = np.maximum(np.log(2 * len(number) / counts), 0)

    def shared(lag: int) -> np.ndarray:
        found = ours[np.isin(ours + (lag << _BUCKETS), theirs, assume_unique=True)]
        rows = np.searchsorted(number, found >> _BUCKETS)
        return np.bincount(rows, weights[np.searchsorted(words, found & mask)], len(number))

    far = np.concatenate([shared(lag) for lag in FAR_LAGS])
    mean, deviation = far.mean(), max(far.std(), 0.1)
    exists = np.array([_at_lag(number, np.zeros(len(number)), lag) for lag in LAGS])
    overlap = np.clip((np.array([shared(lag) for lag in LAGS]) - mean) / deviation, -2, 4) + exists
    strength = max(_of_best_lag(overlap), MIN_OVERLAP)
    evidence = np.clip(strength * overlap - strength**2 / 2, -MAX_OF_LINE, MAX_OF_LINE)
    return strength, np.nan_to_num(evidence)


def _words(number: np.ndarray, texts: list[str]) -> np.ndarray:
    """The distinct words of every line, cut to four letters, as ``line << 24 | hash``, sorted."""
    keys = array("q")
    for line, text in zip(number.tolist(), texts, strict=True):
        plain = text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_MARKS)
        words = {word[:4] for word in _WORD.findall(plain.lower())}
        keys.extend(line << _BUCKETS | zlib.crc32(word.encode()) >> 8 for word in words)
    return np.unique(np.frombuffer(keys, np.int64))


def _standardized(values: np.ndarray) -> np.ndarray:
    """Deviations from the mean of the neighborhood, in standard deviations from -3 to 3."""
    kernel = np.ones(min(NEIGHBORHOOD, len(values)))
    count = np.convolve(np.ones(len(values)), kernel, "same")
    mean = np.convolve(values, kernel, "same") / count
    variance = np.convolve(values**2, kernel, "same") / count - mean**2
    return np.clip((values - mean) / np.sqrt(np.maximum(variance, 0.01)), -3, 3)


def _at_lag(number: np.ndarray, values: np.ndarray, lag: int) -> np.ndarray:
    """For every line the value of the line ``lag`` lines below; NaN if there is none."""
    indices = np.arange(len(number)) + lag
    inside = np.clip(indices, 0, len(number) - 1)
    return np.where((indices == inside) & (number[inside] - number == lag), values[inside], np.nan)


def _of_best_lag(values: np.ndarray) -> float:
    """The median over groups of the largest mean over lags."""
    starts = np.arange(0, values.shape[1], GROUP)
    sums = np.add.reduceat(np.nan_to_num(values), starts, axis=1)
    counts = np.add.reduceat(np.isfinite(values), starts, axis=1)
    return float(np.median((sums / np.maximum(counts, 1)).max(axis=0)))


def _best_path(evidence: np.ndarray) -> np.ndarray:
    """The most likely lag of each group [groups] from the evidence [groups, lags] (Viterbi 1967)."""
    best = evidence[0] - PRICE_OF_START * (np.array(LAGS) != 0)
    origins = []
    for row in evidence[1:]:
        top = int(best.argmax())
        is_change = best[top] - PRICE_OF_CHANGE > best
        origins.append(np.where(is_change, top, np.arange(len(LAGS))))
        best = np.where(is_change, best[top] - PRICE_OF_CHANGE, best) + row
    path = [int(best.argmax())]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    return np.array(path[::-1])
