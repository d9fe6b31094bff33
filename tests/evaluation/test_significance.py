"""Paired tests: against sacreBLEU, against arithmetic, and where there is nothing to tell."""

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from transformer_jax.config import DataError
from transformer_jax.evaluation.significance import Counted, compare_systems, paired_tests, sentence_chrf

WORDS = ["the", "small", "dog", "runs", "over", "a", "green", "field", "while", "two", "men", "watch"]


def sentences(count: int, seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=12)) for _ in range(count)]


def damaged(lines: list[str], share: float, seed: int) -> list[str]:
    """Each word replaced by another with the given probability."""
    generator = np.random.default_rng(seed)
    return [" ".join("wrong" if generator.random() < share else word for word in line.split()) for line in lines]


REFERENCES = sentences(60, seed=0)
GOOD, BAD = damaged(REFERENCES, 0.2, seed=1), damaged(REFERENCES, 0.5, seed=2)
ALIKE = damaged(REFERENCES, 0.2, seed=3)


def test_scores_intervals_and_p_are_those_of_sacrebleu():
    metrics, systems = {"BLEU": BLEU(force=True), "chrF": CHRF()}, [("first", ALIKE), ("second", GOOD)]
    signatures, expected = PairedTest(systems, metrics, [REFERENCES], "ar", 200, n_ar_confidence=200)()
    for found in compare_systems(ALIKE, GOOD, REFERENCES, resamples=200):
        name = {"BLEU": "BLEU", "chrF": "chrF2"}[found.metric]
        assert found.signature == str(signatures[name])
        assert found.p_value == expected[name][1].p_value
        for ours, theirs in zip((found.first, found.second), expected[name], strict=True):
            assert ours.value == theirs.score
            assert (ours.lower, ours.upper) == (theirs.mean - theirs.ci, theirs.mean + theirs.ci)


def test_the_interval_of_a_difference_is_of_the_resamples_of_both_by_hand():
    """One sentence counts 1 and is right or wrong: a score is their mean, and its interval is one
    of a binomial."""
    first, second, references = ["right"] * 50 + ["wrong"] * 50, ["right"] * 80 + ["wrong"] * 20, ["right"] * 100
    is_right = Counted("right", lambda lines, wanted: [[line == "right", 1] for line in lines], lambda n: n[0] / n[1])
    (found,) = paired_tests({"right": is_right}, first, second, references, 1000)
    assert (found.first.value, found.second.value, found.difference.value) == (0.5, 0.8, pytest.approx(0.3))
    half = (found.difference.upper - found.difference.lower) / 2
    # 30 of 100 sentences differ; unpaired intervals would give 1.96 sqrt(0.5 * 0.5 / 100 + 0.8 *
    # 0.2 / 100) = 0.125.
    assert half == pytest.approx(1.96 * np.sqrt(0.3 * 0.7 / 100), abs=0.015)


def test_what_is_equal_or_nearly_so_may_well_be_chance():
    for found in compare_systems(GOOD, GOOD, REFERENCES, 100):
        assert found.p_value == 1
        assert found.difference.lower == found.difference.value == found.difference.upper == 0
    assert all(found.p_value > 0.05 for found in compare_systems(GOOD, ALIKE, REFERENCES, 200))
    with pytest.raises(DataError, match="nothing to pair"):
        compare_systems(GOOD, ALIKE, REFERENCES[1:])
    expected = [CHRF().sentence_score(*pair).score for pair in zip(GOOD, ([each] for each in REFERENCES), strict=True)]
    assert sentence_chrf(GOOD, REFERENCES) == pytest.approx(expected)
