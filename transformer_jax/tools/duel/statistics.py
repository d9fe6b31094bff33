"""Paired tests over seeds: Student's t, Holm's correction, power, and a verdict in words."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from scipy.stats import t

LEVEL, POWER, MOST_SEEDS = 0.05, 0.8, 10_000


class PairedTest(NamedTuple):
    """Differences of ``pairs`` of runs: their mean, standard deviation, 95 % interval of the mean, and two-sided p."""

    pairs: int
    mean: float
    deviation: float
    low: float
    high: float
    p: float


def paired_test(differences: Sequence[float]) -> PairedTest | None:
    """Student's paired t test (1908); None for fewer than two pairs.

    Equal differences have no deviation: p is 1 if they are 0, else 0.
    """
    if len(differences) < 2:
        return None
    pairs, mean, deviation = len(differences), fmean(differences), stdev(differences)
    if not deviation:
        return PairedTest(pairs, mean, 0.0, mean, mean, float(mean == 0))
    error = deviation / math.sqrt(pairs)
    half = float(t.isf(LEVEL / 2, pairs - 1)) * error
    p = float(2 * t.sf(abs(mean) / error, pairs - 1))
    return PairedTest(pairs, mean, deviation, mean - half, mean + half, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """p adjusted for several tests, in their order (Holm 1979), which bounds the probability of any false alarm."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def detectable(deviation: float, pairs: int, tests: int = 1) -> float:
    """The difference that ``tests`` tests (Bonferroni) find with probability 0.8; ``deviation`` is of the differences."""
    return deviation * float(_quantiles(np.array(pairs), tests)) / math.sqrt(pairs)


def seeds_needed(difference: float, deviation: float, tests: int = 1) -> int:
    """The fewest pairs with which a difference is found with probability 0.8; at most 10,000."""
    pairs = np.arange(2, MOST_SEEDS)
    ratio = abs(difference) / deviation if deviation else math.inf
    enough = _quantiles(pairs, tests) <= np.sqrt(pairs) * ratio
    return int(pairs[enough.argmax()]) if enough.any() else MOST_SEEDS


def _quantiles(pairs: np.ndarray, tests: int) -> np.ndarray:
    quantiles: np.ndarray = t.isf(LEVEL / tests / 2, pairs - 1) + t.isf(1 - POWER, pairs - 1)
    return quantiles


def verdict(test: PairedTest | None, adjusted: float, sign: int, metric: str, digits: int, failures: str = "") -> str:
    """The conclusion of a test in words; ``sign`` is -1 where lower is better, ``failures`` the runs that failed, in words."""
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
