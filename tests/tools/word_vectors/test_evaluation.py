"""Word vectors scored: exact counts on tables made for it, coverage stated, nothing claimed of what is not covered."""

import json

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.evaluation import evaluate_vectors, spearman
from transformer_jax.tools.word_vectors.test_sets import AnalogySection, AnalogySet, SimilaritySet, WordTestSets
from transformer_jax.tools.word_vectors.vectors import WordVectors

WORDS = {"man": [1, 0, 0], "woman": [1, 1, 0], "king": [1, 0, 1], "queen": [1, 1, 1], "apple": [-1, 0, 0.1]}
ROYAL = WordVectors(tuple(WORDS), np.array(list(WORDS.values()), np.float32))


def analogies(**sections):
    listed = (AnalogySection(name, tuple(map(tuple, map(str.split, text)))) for name, text in sections.items())
    return WordTestSets(analogies=(AnalogySet("set", tuple(listed)),))


def test_analogies_are_counted_by_section_and_kind():
    # The nearest to man - king + queen is the question word queen itself; without the three, woman is right.
    sets = analogies(
        family=["man king woman queen", "King man Queen woman", "man king woman apple"],
        currency=["dollar usa euro europe"],
        gram1=["man woman king queen", "man woman king duck"],
    )
    scores = evaluate_vectors(ROYAL, sets).analogies[0]
    counts = [(each.name, each.correct, each.covered, each.total) for each in scores.sections]
    assert counts == [("family", 2, 3, 3), ("currency", 0, 0, 1), ("gram1", 1, 1, 2)]
    assert (scores.semantic.correct, scores.semantic.covered, scores.semantic.total) == (2, 3, 4)
    assert (scores.syntactic.correct, scores.syntactic.covered, scores.syntactic.total) == (1, 1, 2)
    assert scores.overall.accuracy == 3 / 4
    assert scores.sections[1].accuracy is None


def test_a_limit_leaves_later_words_out_of_questions_and_answers():
    report = evaluate_vectors(ROYAL, analogies(family=["man king woman queen", "man woman king king"]), limit=3)
    assert (report.analogies[0].overall.covered, report.analogies[0].overall.correct) == (1, 0)
    assert report.num_words == 5
    assert "the first 3 of them" in report.table()


def test_spearman():
    # Ranks 1 2 3 4 against 2 1 3 4: 1 - 6 * (1 + 1) / (4 * 15).
    assert spearman([1, 2, 3, 4], [20, 10, 30, 400]) == pytest.approx(0.8)
    # Ties take the mean rank: Pearson's of (1.5, 1.5, 3) and (1, 2, 3).
    assert spearman([5, 5, 7], [1, 2, 3]) == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])
    assert spearman([1], [1]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None


def test_similarities_rank_by_cosine():
    pairs = (
        ("man", "woman", 3.0),
        ("Man", "King", 2.0),
        ("man", "apple", 0.0),
        ("king", "queen", 5.0),
        ("duck", "man", 9.0),
    )
    sets = WordTestSets(similarities=(SimilaritySet("ours", pairs), SimilaritySet("none", (("x", "y", 1.0),))))
    scores = evaluate_vectors(ROYAL, sets).similarities
    assert (scores[0].covered, scores[0].total) == (4, 5)
    cosines = [0.5**0.5, 0.5**0.5, -1 / 1.01**0.5, 2 / 6**0.5]
    assert scores[0].spearman == pytest.approx(spearman(np.float32(cosines), [3, 2, 0, 5]))
    assert (scores[1].spearman, scores[1].covered) == (None, 0)


def test_the_report_as_json_text_and_log():
    sets = WordTestSets(
        analogies(family=["man king woman queen"], gram1=["a b c d"]).analogies,
        (SimilaritySet("few", (("man", "king", 1.0),)),),
    )
    report = evaluate_vectors(ROYAL, sets)
    fields = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert fields["analogies"][0]["overall"] == {
        "name": "overall",
        "correct": 1,
        "covered": 1,
        "total": 2,
        "accuracy": 1.0,
    }
    assert fields["analogies"][0]["syntactic"]["accuracy"] is None
    assert fields["similarities"] == [{"name": "few", "spearman": None, "covered": 1, "total": 1}]
    assert report.headline() == {"analogies": 1.0, "analogies_semantic": 1.0, "coverage": pytest.approx(2 / 3)}
    lines = [line.split() for line in report.table().split("\n")]
    assert ["set,", "overall", "100.00", "%", "1", "1", "of", "2", "50.0", "%"] in lines
    assert ["few", "-", "1", "of", "1", "100.0", "%"] in lines
    with pytest.raises(DataError, match="no test set"):
        evaluate_vectors(ROYAL, WordTestSets())
