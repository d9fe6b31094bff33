"""Expected utilities of candidates, against sacreBLEU's scores of sentences."""

import numpy as np
import pytest

from transformer_jax.evaluation.expected_utility import expected_utilities, utility_of

TEXTS = [
    "Zwei Hunde spielen im Schnee.",
    "Zwei Hunde rennen durch den Schnee .",
    "Zwei Hunde spielen im Schnee.",
    "Ein Hund, ein Hund und noch ein Hund",
    "Schnee",
    "",
    "日本語 ab",
]


@pytest.mark.parametrize("name", ["chrf", "bleu"])
def test_utilities_are_means_of_sacrebleus_scores_of_sentences(name):
    utility = utility_of(name, "13a")
    found = expected_utilities(TEXTS, utility)
    assert set(found) == set(TEXTS)
    for text, value in found.items():
        scores = [utility.metric.sentence_score(text, [reference]).score for reference in TEXTS]
        np.testing.assert_allclose(value, np.mean(scores), rtol=1e-12, atol=1e-12)
    assert found["Zwei Hunde spielen im Schnee."] == max(found.values())


def test_bleu_counts_the_words_of_the_tokenizer():
    words, characters = (expected_utilities(["ab", "ac"], utility_of("bleu", each))["ab"] for each in ("13a", "char"))
    assert words == pytest.approx(50) and characters > 60
