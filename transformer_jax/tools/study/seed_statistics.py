"""Paired tests over seeds: Student's t, Holm's correction, power, and a verdict in words."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t

from transformer_jax.config import Metric

# The significance level, and the probability of a significant test for which a study is sized.
LEVEL = 0.05
POWER = 0.8
# The number of pairs at which ``seeds_needed`` gives up.
MOST_SEEDS = 10_000
# The number of deviations over which ``_power`` takes its mean.
QUANTILES = 1000
# A deviation below this share of the mean is rounding.
ROUNDING = 1e-9


class PairedTest(NamedTuple):
    """Mean and standard deviation of the differences of pairs, 95 % interval of the mean, p."""

    pairs: int
    mean: float
    deviation: float
    low: float
    high: float
    p: float


def paired_test(differences: Sequence[float], tests: int = 1) -> PairedTest | None:
    """Return Student's paired t test (1908), or None for fewer than two pairs.

    Bonferroni's method widens the interval for this number of ``tests``. Equal differences, which a
    discrete metric can give, have deviation 0. Then p is 1 if they are 0, and otherwise p of the
    sign test, 2^(1-pairs), and the interval comes from a t test with this p.
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
    """Return p adjusted for several tests (Holm 1979), and the number of tests it is corrected for.

    The adjustment bounds the probability of any false alarm. The number falls after a significant
    test. A Bonferroni interval for it excludes 0 exactly if the adjusted p is below ``LEVEL``.
    """
    adjusted, largest, left = [(1.0, 1)] * len(p_values), 0.0, len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest, left
        left -= left > 1 and p_values[index] * left < LEVEL
    return adjusted


def deviation_range(deviation: float, degrees: int) -> tuple[float, float]:
    """Return the 95 % interval of an estimated standard deviation (chi-squared)."""
    low, high = (math.sqrt(degrees / float(chi2.ppf(share, degrees))) for share in (1 - LEVEL / 2, LEVEL / 2))
    return deviation * low, deviation * high


def detectable(deviation: float, pairs: int, tests: int = 1) -> float:
    """Return the difference that a test, one of ``tests``, finds with probability 0.8."""
    most = 2 * float(t.isf(LEVEL / tests / 2, pairs - 1) + t.isf(1 - POWER, pairs - 1))
    shift = float(brentq(lambda shift: _power(shift, pairs, tests) - POWER, 0, most))
    return deviation * shift / math.sqrt(pairs)


def seeds_needed(difference: float, deviation: float, tests: int = 1) -> int | None:
    """Return the fewest pairs that find a difference with probability 0.8.

    None for more than ``MOST_SEEDS``.
    """
    if not deviation:
        return 2
    ratio = abs(difference) / deviation
    pairs = range(MOST_SEEDS + 1)
    needed = bisect_left(pairs, True, lo=2, key=lambda n: _power(ratio * math.sqrt(n), n, tests) >= POWER)
    return needed if needed in pairs else None


def _power(shift: float, pairs: int, tests: int) -> float:
    """Return the probability that a two-sided test finds a mean of ``shift`` standard errors.

    Takes the mean over quantiles of the estimated deviation, since scipy's noncentral t is NaN for
    many pairs.
    """
    deviations = np.sqrt(chi2.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES, pairs - 1) / (pairs - 1))
    edges = t.isf(LEVEL / tests / 2, pairs - 1) * deviations
    return float(np.mean(norm.sf(edges - shift) + norm.cdf(-edges - shift)))


def verdict(test: PairedTest | None, adjusted: float, metric: Metric, failures: str = "") -> str:
    """Return the conclusion of a test in words. ``failures`` says which runs failed."""
    if test is None:
        return f"no test, since fewer than two pairs of runs ended well{failures and f'; {failures}'}"
    sign = 1 if metric.direction == "maximize" else -1
    worst, best = sorted((sign * test.low, sign * test.high))
    if not test.deviation and not test.mean:
        words = "equal to the base in every run"
    elif adjusted < LEVEL:
        least, most = sorted((abs(worst), abs(best)))
        word, side = ("helps", "better") if sign * test.mean > 0 else ("hurts", "worse")
        words = f"{word}: {metric.label} {side} by {metric.text(least)} to {metric.text(most)}"
    else:
        possible = [f"{metric.text(best)} better"] if best > 0 else []
        possible += [f"{metric.text(-worst)} worse"] if worst < 0 else []
        words = f"no difference shown; {metric.label} may still be up to {' or '.join(possible)}"
    return f"{words}; {failures} and are left out" if failures else words
