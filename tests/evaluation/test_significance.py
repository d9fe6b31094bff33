"""The paired bootstrap: against sacreBLEU, against arithmetic, and where there is nothing to tell."""

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from transformer_jax.config import DataError
from transformer_jax.evaluation.scores import score_translations
from transformer_jax.evaluation.significance import _p_value, compare_systems, sentence_chrf

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


def test_scores_and_intervals_are_those_of_sacrebleu():
    metrics, systems = {"BLEU": BLEU(force=True), "chrF": CHRF()}, [("first", ALIKE), ("second", GOOD)]
    signatures, expected = PairedTest(systems, metrics, [REFERENCES], test_type="bs", n_samples=200)()
    scores = score_translations(GOOD, REFERENCES)
    expected_scores = {"BLEU": scores.values["bleu"], "chrF": scores.values["chrf"]}
    for found in compare_systems(ALIKE, GOOD, REFERENCES, resamples=200):
        name = {"BLEU": "BLEU", "chrF": "chrF2"}[found.metric]
        assert found.signature == str(signatures[name])
        assert found.second.value == pytest.approx(expected_scores[found.metric])
        for ours, theirs in zip((found.first, found.second), expected[name], strict=True):
            assert ours.value == pytest.approx(theirs.score)
            assert (ours.upper - ours.lower) / 2 == pytest.approx(theirs.ci, rel=1e-5)
            assert ours.lower < theirs.mean < ours.upper


def test_a_clear_difference_is_not_chance_and_has_a_sign():
    forth, back = compare_systems(BAD, GOOD, REFERENCES, 200)[0], compare_systems(GOOD, BAD, REFERENCES, 200)[0]
    assert forth.p_value == back.p_value == pytest.approx(1 / 201)
    assert forth.difference.value == -back.difference.value > 0
    assert forth.difference.lower > 0 > back.difference.upper
    assert forth.difference.value == forth.second.value - forth.first.value


def test_what_is_equal_or_nearly_so_may_well_be_chance():
    for found in compare_systems(GOOD, GOOD, REFERENCES, 100):
        assert found.p_value == 1
        assert found.difference.lower == found.difference.value == found.difference.upper == 0
    assert all(found.p_value > 0.05 for found in compare_systems(GOOD, ALIKE, REFERENCES, 200))
    with pytest.raises(DataError, match="nothing to pair"):
        compare_systems(GOOD, ALIKE, REFERENCES[1:])
    expected = [CHRF().sentence_score(*pair).score for pair in zip(GOOD, ([each] for each in REFERENCES), strict=True)]
    assert sentence_chrf(GOOD, REFERENCES) == pytest.approx(expected)


def test_p_value_by_hand():
    """Of resampled differences 0 to 4 two are 2 from their mean; that makes 3 of 6, the measured one counted."""
    drawn = np.arange(5.0)
    assert _p_value(2.0, drawn, 9) == _p_value(-2.0, drawn, 9) == pytest.approx((2 + 1) / 6)
    assert _p_value(2.1, drawn, 9) == pytest.approx(1 / 6)
    assert _p_value(0.0, drawn, 9) == 1


def test_few_sentences_tell_nothing():
    for number, least in (1, 1.0), (2, 0.5), (5, 1 / 16):
        found = compare_systems(BAD[:number], REFERENCES[:number], REFERENCES[:number], 200)
        assert all(each.p_value >= least for each in found)
