import math

import numpy as np
import pytest

from transformer_jax.config import Metric
from transformer_jax.tools.study.seed_statistics import (
    PairedTest,
    detectable,
    deviation_range,
    holm,
    paired_test,
    seeds_needed,
    verdict,
)

DUELS = 400


def duels(pairs: int, ideas: int, shift: float = 0.0) -> np.ndarray:
    """Differences ``[duels, ideas, pairs]`` of ideas as good as the base (plus ``shift``), which
    share its runs."""
    noise = np.random.default_rng(7).normal(size=(DUELS, ideas + 1, pairs))
    return noise[:, 1:] - noise[:, :1] + shift


def finds(differences: np.ndarray) -> np.ndarray:
    """Whether each idea of each duel helps or hurts, ``[duels, ideas]``."""
    return np.array([[p < 0.05 for p, _ in holm([paired_test(list(idea)).p for idea in duel])] for duel in differences])


def test_a_paired_test_by_hand():
    test = paired_test([1.0, 2.0, 3.0])
    # t = 2 / (1 / sqrt(3)) with 2 degrees of freedom, whose tails are 1 - t / sqrt(2 + t^2).
    assert (test.pairs, test.mean, test.deviation) == (3, 2.0, 1.0)
    assert test.p == pytest.approx(1 - math.sqrt(12 / 14))
    assert (test.low, test.high) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), abs=1e-5)
    assert paired_test([1.0]) is None


@pytest.mark.parametrize(("differences", "p"), [([0.0] * 3, 1.0), ([0.3 - 0.2, 0.4 - 0.3], 0.5), ([-0.01] * 6, 2**-5)])
def test_equal_differences_are_no_surer_than_their_signs(differences, p):
    test = paired_test(differences)
    assert (test.p, test.deviation) == (p, 0.0)
    assert (test.low <= 0 <= test.high) == (p > 0.05)
    assert test.low <= test.mean <= test.high


def test_holms_correction():
    p_values, tests = zip(*holm([0.03, 0.01, 0.04]), strict=True)
    assert p_values == pytest.approx((0.06, 0.03, 0.06)) and tests == (2, 3, 2)
    assert (holm([0.5, 0.9]), holm([])) == ([(1.0, 2), (1.0, 2)], [])


def test_intervals_exclude_zero_where_the_adjusted_p_is_significant():
    excluded = 0
    for duel in duels(5, 4, shift=1.5)[:100]:
        p_values = [paired_test(list(idea)).p for idea in duel]
        for idea, (p, number) in zip(duel, holm(p_values), strict=True):
            test = paired_test(list(idea), number)
            assert (test.low > 0 or test.high < 0) == (p < 0.05)
            excluded += p < 0.05
    assert 20 < excluded < 380


def test_the_range_of_a_deviation_covers_it():
    samples = np.random.default_rng(5).normal(size=(4000, 5)).std(axis=1, ddof=1)
    ranges = [deviation_range(float(deviation), 4) for deviation in samples]
    assert np.mean([low < 1.0 < high for low, high in ranges]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(("pairs", "ideas"), [(3, 1), (5, 1), (5, 4)])
def test_null_duels_raise_false_alarms_at_the_stated_rate(pairs, ideas):
    alarms = finds(duels(pairs, ideas)).any(axis=1).mean()
    # Four standard errors; Holm keeps below the level where ideas share the runs of the base.
    assert alarms < 0.05 + 4 * math.sqrt(0.05 * 0.95 / DUELS)
    assert alarms > (0.022 if ideas == 1 else 0.01)


@pytest.mark.parametrize(("pairs", "ideas"), [(5, 1), (10, 4)])
def test_a_planted_effect_of_detectable_size_is_found_with_the_stated_power(pairs, ideas):
    shift = detectable(math.sqrt(2), pairs, ideas)
    significant = finds(duels(pairs, ideas, shift))
    # The plan is for Bonferroni, which Holm surpasses.
    assert 0.77 < significant.mean() < (0.85 if ideas == 1 else 0.97)
    assert seeds_needed(shift * 1.001, math.sqrt(2), ideas) == pairs


def test_verdicts_say_what_the_interval_allows():
    test, both = PairedTest(5, 0.5, 0.3, 0.2, 0.8, 0.01), PairedTest(5, 0.1, 0.3, -0.3, 0.5, 0.4)
    bleu, loss = Metric("bleu", "maximize", "BLEU", digits=2), Metric("loss", "minimize", digits=1)
    assert verdict(test, 0.02, bleu) == "helps: BLEU better by 0.20 to 0.80"
    failed = "1 of 5 runs of x failed"
    hurts = f"hurts: loss worse by 0.2 to 0.8; {failed} and are left out"
    assert verdict(test, 0.02, loss, failed) == hurts
    assert verdict(test, 0.06, bleu) == "no difference shown; BLEU may still be up to 0.80 better"
    assert verdict(both, 0.4, loss) == "no difference shown; loss may still be up to 0.3 better or 0.5 worse"
    assert verdict(PairedTest(3, 0.0, 0.0, 0.0, 0.0, 1.0), 1.0, bleu) == "equal to the base in every run"
    assert verdict(None, 1.0, bleu, failed).endswith(f"ended well; {failed}")
