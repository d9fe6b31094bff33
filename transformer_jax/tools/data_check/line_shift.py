"""Detection of shifted lines in parallel text, by the lengths of lines and their neighbors.

Translations have similar lengths (Gale and Church 1993). The evidence for a lag is a log-likelihood
ratio of the two lengths as correlated normal variables. The sides are shifted by the most likely
sequence of lags, with a cost for a change.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LAGS = range(-3, 4)
# Lines that share a lag.
GROUP = 64
# Lines over which lengths are standardized.
NEIGHBORHOOD = 256
# Log-likelihood that a change of lag must gain, and a lag at the start.
PRICE_OF_CHANGE = 30.0
PRICE_OF_START = 10.0
# Maximum evidence of one line.
MAX_OF_LINE = 3.0
MIN_CORRELATION = 0.05
MAX_CORRELATION = 0.95
# The mean of the largest of seven random correlations of a group is 0.16.
MIN_AGREEING = 0.2


class Stretch(NamedTuple):
    """From ``line`` (from 1), source line n translates target line n + ``lag``."""

    line: int
    lag: int


class LineShift(NamedTuple):
    """The stretches of constant lag, and the correlation of the lengths of pairs."""

    stretches: list[Stretch]
    correlation: float

    @property
    def is_shifted(self) -> bool:
        return any(stretch.lag for stretch in self.stretches)

    @property
    def lengths_agree(self) -> bool:
        """Whether the lengths of pairs agree."""
        return self.correlation >= MIN_AGREEING

    def descriptions(self, source: str, target: str) -> list[str]:
        """Return a description of each shifted stretch of two files."""
        ends = [f"to {stretch.line - 1:,}" for stretch in self.stretches[1:]] + ["to the end"]
        return [
            f"from line {line:,} {end}, line n of {source} translates line n{lag:+} of {target}"
            for (line, lag), end in zip(self.stretches, ends, strict=True)
            if lag
        ]


def line_shift(lines: Sequence[int] | np.ndarray, lengths: np.ndarray) -> LineShift:
    """Return the lags of pairs with ``lengths`` [pairs, 2] in characters at ``lines`` (from 0).

    The lag is 0 for fewer than ``GROUP`` pairs, or if nothing shows that they are translations.
    """
    number = np.asarray(lines)
    unshifted = [Stretch(int(number[0]) + 1 if len(number) else 1, 0)]
    if len(lengths) < GROUP:
        return LineShift(unshifted, 0.0)
    correlation, evidence = _evidence(number, lengths)
    shift = LineShift(unshifted, correlation)
    if not shift.lengths_agree:
        return shift
    return shift._replace(stretches=stretches_of(number, evidence, LAGS, GROUP))


def stretches_of(number: np.ndarray, evidence: np.ndarray, lags: Sequence[int], group: int) -> list[Stretch]:
    """Return the most likely stretches of lines ``number`` by their ``evidence`` [lags, lines]."""
    starts = np.arange(0, max(len(number) - group // 2, 1), group)
    path = _best_path(np.add.reduceat(evidence, starts, axis=1).T, lags)
    stretches = [Stretch(int(number[0]) + 1, lags[path[0]])]
    for at in (np.flatnonzero(np.diff(path)) + 1).tolist():
        before, after = int(path[at - 1]), int(path[at])
        # The path may change a group too early or too late. The evidence for the first lag ends at
        # the exact line.
        first, last = int(starts[at - 1]), min(int(starts[at]) + group, len(number))
        gain = np.cumsum(evidence[before, first:last] - evidence[after, first:last])
        index = min(first + int(np.argmax(gain)) + 1, len(number) - 1)
        stretches.append(Stretch(int(number[index]) + 1, lags[after]))
    return stretches


def _evidence(number: np.ndarray, lengths: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the correlation of log-lengths, and the evidence for each lag [lags, lines]."""
    ours, theirs = map(_standardized, np.log(lengths.T + 3))
    lagged = np.array([_at_lag(number, theirs, lag) for lag in LAGS])
    starts = np.arange(0, len(number), GROUP)
    sums = np.add.reduceat(np.nan_to_num(ours * lagged), starts, axis=1)
    counts = np.add.reduceat(np.isfinite(lagged), starts, axis=1)
    # The median over groups of the largest correlation over lags.
    largest = float(np.median((sums / np.maximum(counts, 1)).max(axis=0)))
    correlation = np.clip(largest, MIN_CORRELATION, MAX_CORRELATION)
    rest = 1 - correlation**2
    evidence = lagged**2 / 2 - (lagged - correlation * ours) ** 2 / (2 * rest) - np.log(rest) / 2
    return float(correlation), np.nan_to_num(np.clip(evidence, -MAX_OF_LINE, MAX_OF_LINE))


def _standardized(values: np.ndarray) -> np.ndarray:
    """Return deviations from the mean of the neighborhood, in standard deviations up to 3."""
    kernel = np.ones(min(NEIGHBORHOOD, len(values)))
    count = np.convolve(np.ones(len(values)), kernel, "same")
    mean = np.convolve(values, kernel, "same") / count
    variance = np.convolve(values**2, kernel, "same") / count - mean**2
    return np.clip((values - mean) / np.sqrt(np.maximum(variance, 0.01)), -3, 3)


def _at_lag(number: np.ndarray, values: np.ndarray, lag: int) -> np.ndarray:
    """Return the values ``lag`` lines below, NaN if there is no such line."""
    indices = np.arange(len(number)) + lag
    inside = np.clip(indices, 0, len(number) - 1)
    return np.where((indices == inside) & (number[inside] - number == lag), values[inside], np.nan)


def _best_path(evidence: np.ndarray, lags: Sequence[int]) -> np.ndarray:
    """Return the most likely lags [groups] from the evidence [groups, lags] (Viterbi 1967)."""
    best = evidence[0] - PRICE_OF_START * (np.array(lags) != 0)
    origins = []
    for row in evidence[1:]:
        top = int(best.argmax())
        is_change = best[top] - PRICE_OF_CHANGE > best
        origins.append(np.where(is_change, top, np.arange(len(lags))))
        best = np.where(is_change, best[top] - PRICE_OF_CHANGE, best) + row
    path = [int(best.argmax())]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    return np.array(path[::-1])
