"""Paired tests over seeds: Student's t, Holm's correction, power, and a verdict in words."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t

LEVEL, POWER, MOST_SEEDS, QUANTILES = 0.05, 0.8, 10_000, 1000
# A deviation below this share of the mean is rounding.
ROUNDING = 1e-9


class PairedTest(NamedTuple):
    """Differences of ``pairs`` of runs: their mean, standard deviation, 95 % interval of the mean, and two-sided p."""

    pairs: int
    mean: float
    deviation: float
    low: float
    high: float
    p: float


def paired_test(differences: Sequence[float], tests: int = 1) -> PairedTest | None:
    """Student's paired t test (1908); None for fewer than two pairs. The interval is Bonferroni's for this many ``tests``.

    If all differences are equal, which can happen with a discrete metric, their deviation is 0.
    Then p is 1 if they are 0, and otherwise p of the sign test, 2^(1-pairs). The interval equals
    the interval of a t test with this p.
    """
    if len(differences) < 2:
        return None
    pairs, mean, deviation = len(differences), fmean(differences), stdev(differences)
    if deviation <= ROUNDING * abs(mean):
        deviation, p = 0.0, 2.0 ** (1 - pairs) if mean else 1.0
        error = abs(mean) / float(t.isf(p / 2, pairs - 1)) if mean else 0.0
    else:
        error = deviation / math.sqrt(pairs)
        p = float(2 * t.sf(abs(mean) / error, pairs - 1))
    half = float(t.isf(LEVEL / tests / 2, pairs - 1)) * error
    return PairedTest(pairs, mean, deviation, mean - half, mean + half, p)


def holm(p_values: Sequence[float]) -> list[tuple[float, int]]:
    """p adjusted for several tests, in their order (Holm 1979), which bounds the probability of any false alarm.

    And the number of tests that it is corrected for, fewer after each that is significant: a
    Bonferroni interval for this number excludes 0 exactly where the adjusted p is below ``LEVEL``.
    """
    adjusted, largest, left = [(1.0, 1)] * len(p_values), 0.0, len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest, left
        left -= left > 1 and p_values[index] * left < LEVEL
    return adjusted


def deviation_range(deviation: float, degrees: int) -> tuple[float, float]:
    """Return the 95 % interval of a standard deviation that was estimated with these degrees of freedom (chi-squared)."""
    low, high = (math.sqrt(degrees / float(chi2.ppf(share, degrees))) for share in (1 - LEVEL / 2, LEVEL / 2))
    return deviation * low, deviation * high


def detectable(deviation: float, pairs: int, tests: int = 1) -> float:
    """Return the difference that ``tests`` tests (Bonferroni) find with probability 0.8;
    ``deviation`` is of the differences.
    """
    most = 2 * float(t.isf(LEVEL / tests / 2, pairs - 1) + t.isf(1 - POWER, pairs - 1))
    shift = float(brentq(lambda shift: _power(shift, pairs, tests) - POWER, 0, most))
    return deviation * shift / math.sqrt(pairs)


def seeds_needed(difference: float, deviation: float, tests: int = 1) -> int | None:
    """Return the fewest pairs with which a difference is found with probability 0.8; None for more than ``MOST_SEEDS``."""
    if not deviation:
        return 2
    ratio = abs(difference) / deviation
    pairs = range(MOST_SEEDS + 1)
    needed = bisect_left(pairs, True, lo=2, key=lambda n: _power(ratio * math.sqrt(n), n, tests) >= POWER)
    return needed if needed in pairs else None


def _power(shift: float, pairs: int, tests: int) -> float:
    """Return the probability that a two-sided test finds a mean of ``shift`` standard errors (noncentral t).

    It is the mean over quantiles of the estimated deviation: scipy's noncentral t is not a number for many pairs.
    """
    deviations = np.sqrt(chi2.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES, pairs - 1) / (pairs - 1))
    edges = t.isf(LEVEL / tests / 2, pairs - 1) * deviations
    return float(np.mean(norm.sf(edges - shift) + norm.cdf(-edges - shift)))


def verdict(test: PairedTest | None, adjusted: float, sign: int, metric: str, digits: int, failures: str = "") -> str:
    """Return the conclusion of a test in words; ``sign`` is -1 where lower is better, ``failures``
    the runs that failed, in words.
    """
    if test is None:
        return f"no test, since fewer than two pairs of runs ended well{failures and f'; {failures}'}"
    worst, best = sorted((sign * test.low, sign * test.high))
    if not test.deviation and not test.mean:
        words = "equal to the base in every run"
    elif adjusted < LEVEL:
        least, most = sorted((abs(worst), abs(best)))
        word, side = ("helps", "better") if sign * test.mean > 0 else ("hurts", "worse")
        words = f"{word}: {metric} {side} by {least:.{digits}f} to {most:.{digits}f}"
    else:
        possible = [f"{best:.{digits}f} better"] if best > 0 else []
        possible += [f"{-worst:.{digits}f} worse"] if worst < 0 else []
        words = f"no difference shown; {metric} may still be up to {' or '.join(possible)}"
    return f"{words}; {failures} and are left out" if failures else words
