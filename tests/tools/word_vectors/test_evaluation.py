"""Test sets as people distribute them, and scores of word vectors: exact counts, coverage stated."""

import json

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.evaluation import (
    WordTestSets,
    evaluate_vectors,
    read_test_sets,
    spearman,
)
from transformer_jax.tools.word_vectors.vectors import WordVectors

WORDS = {"man": [1, 0, 0], "woman": [1, 1, 0], "king": [1, 0, 1], "queen": [1, 1, 1], "apple": [-1, 0, 0.1]}
ROYAL = WordVectors(tuple(WORDS), np.array(list(WORDS.values()), np.float32))
ANALOGIES = ": capital\nAthens Greece Oslo Norway\n: gram3-comparative\nbad worse big bigger\ngood better old older\n"


def analogies(**sections):
    return WordTestSets({"set": {name: [tuple(text.split()) for text in texts] for name, texts in sections.items()}})


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
    assert "5 words, 3 dimensions, the first 3 of them" in report.table()


def test_spearman():
    # Ranks 1 2 3 4 against 2 1 3 4: 1 - 6 * (1 + 1) / (4 * 15).
    assert spearman([1, 2, 3, 4], [20, 10, 30, 400]) == pytest.approx(0.8)
    # Ties take the mean rank: Pearson's of (1.5, 1.5, 3) and (1, 2, 3).
    assert spearman([5, 5, 7], [1, 2, 3]) == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])
    assert spearman([1], [1]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None


def test_similarities_rank_by_cosine():
    judged = {("man", "woman"): 3.0, ("Man", "King"): 2.0, ("man", "apple"): 0.0, ("king", "queen"): 5.0}
    pairs = (*((*words, value) for words, value in judged.items()), ("duck", "man", 9.0))
    (score,) = evaluate_vectors(ROYAL, WordTestSets(similarities={"ours": pairs})).similarities
    assert (score.covered, score.total) == (4, 5)
    cosines = [0.5**0.5, 0.5**0.5, -1 / 1.01**0.5, 2 / 6**0.5]
    assert score.spearman == pytest.approx(spearman(np.float32(cosines), [3, 2, 0, 5]))


def test_the_report_as_json_text_and_log():
    asked = analogies(family=["man king woman queen"], gram1=["a b c d"]).analogies
    sets = WordTestSets(asked, {"few": [("man", "king", 1.0)]})
    report = evaluate_vectors(ROYAL, sets)
    fields = json.loads(json.dumps(report.to_json(), allow_nan=False))
    overall = {"name": "overall", "correct": 1, "covered": 1, "total": 2, "accuracy": 1.0}
    assert fields["analogies"][0]["overall"] == overall
    assert fields["analogies"][0]["syntactic"]["accuracy"] is None
    assert fields["similarities"] == [{"name": "few", "spearman": None, "covered": 1, "total": 1}]
    assert report.headline() == {"analogies": 1.0, "analogies_semantic": 1.0, "coverage": pytest.approx(2 / 3)}
    lines = [line.split() for line in report.table().split("\n")]
    assert ["set,", "overall", "100.00", "%", "1", "1", "of", "2", "50.0", "%"] in lines
    assert ["few", "-", "1", "of", "1", "100.0", "%"] in lines
    with pytest.raises(DataError, match="no test set"):
        evaluate_vectors(ROYAL, WordTestSets())


@pytest.mark.parametrize(
    "text",
    ["tiger\tcat\t7.35\r\ntiger\ttiger\t10\r\n", "Word 1,Word 2,Human (mean)\ntiger,cat,7.35\ntiger,tiger,10.00\n",
     "tiger cat 7.35\n\ntiger tiger 10\n", "tiger;cat;7.35\ntiger;tiger;10"],
)  # fmt: skip
def test_judged_pairs_are_read(text, tmp_path):
    (tmp_path / "ws.txt").write_bytes(text.encode())
    expected = {"ws": [("tiger", "cat", 7.35), ("tiger", "tiger", 10.0)]}
    assert read_test_sets([str(tmp_path)]).similarities == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\t1\na\tb\n", "line 2: 'a\\\\tb' is not two words and a number"),
        ("a b\n", "line 1"),
        (": one\na b c d\na b c\n", "line 3: 3 words, expected four"),
        ("", "the file is empty"),
    ],
)
def test_other_lines_are_refused(text, message, tmp_path):
    (tmp_path / "pairs.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_test_sets([str(tmp_path / "pairs.txt")])


def test_folders_are_searched(tmp_path):
    for folder in ("word-sim", "none"):
        (tmp_path / folder).mkdir()
    (tmp_path / "word-sim" / "ws.txt").write_text("a\tb\t1\n")
    (tmp_path / "q.txt").write_text(ANALOGIES)
    (tmp_path / "license.txt").write_text("yes")
    (tmp_path / "plain.tsv").write_text("a b c d\n")
    found = read_test_sets([str(tmp_path), str(tmp_path / "q.txt")])
    assert found.analogies["plain"] == {"plain": [("a", "b", "c", "d")]}
    assert found.analogies["q"]["capital"] == [("Athens", "Greece", "Oslo", "Norway")]
    assert list(found.analogies["q"]) == ["capital", "gram3-comparative"]
    assert list(found.similarities) == ["ws"]
    with pytest.raises(DataError, match="no test sets in this folder"):
        read_test_sets([str(tmp_path / "none")])
    (tmp_path / "none" / "q.csv").write_text("a,b,1\n")
    with pytest.raises(DataError, match="2 test sets are named q; rename"):
        read_test_sets([str(tmp_path)])
