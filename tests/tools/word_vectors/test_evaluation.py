"""Test sets as people distribute them, and scores of word vectors: exact counts, coverage stated."""

import numpy as np
import pytest
from tools.word_vectors.word_vectors_settings import ROYAL

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.evaluation import WordTestSets, evaluate_vectors, read_test_sets, spearman


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
    sums = [(each.correct, each.covered, each.total) for each in (scores.semantic, scores.syntactic)]
    assert sums == [(2, 3, 4), (1, 1, 2)]
    assert scores.overall.accuracy == 3 / 4 and scores.sections[1].accuracy is None


def test_spearman():
    # Ranks 1 2 3 4 against 2 1 3 4: 1 - 6 * (1 + 1) / (4 * 15).
    assert spearman([1, 2, 3, 4], [20, 10, 30, 400]) == pytest.approx(0.8)
    # Ties take the mean rank: Pearson's of (1.5, 1.5, 3) and (1, 2, 3).
    assert spearman([5, 5, 7], [1, 2, 3]) == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])
    assert spearman([1], [1]) is None and spearman([1, 1, 1], [1, 2, 3]) is None


def test_similarities_rank_by_cosine():
    judged = {("man", "woman"): 3.0, ("Man", "King"): 2.0, ("man", "apple"): 0.0, ("king", "queen"): 5.0}
    pairs = (*((*words, value) for words, value in judged.items()), ("duck", "man", 9.0))
    (score,) = evaluate_vectors(ROYAL, WordTestSets(similarities={"ours": pairs})).similarities
    assert (score.covered, score.total) == (4, 5)
    cosines = [0.5**0.5, 0.5**0.5, -1 / 1.01**0.5, 2 / 6**0.5]
    assert score.spearman == pytest.approx(spearman(np.float32(cosines), [3, 2, 0, 5]))


def test_judged_pairs_are_read(tmp_path):
    for text in (
        "tiger\tcat\t7.35\r\ntiger\ttiger\t10\r\n",
        "Word 1,Word 2,Human (mean)\ntiger,cat,7.35\ntiger,tiger,10.00\n",
        "# word word mean score\ntiger cat 7.35\n\ntiger tiger 10\n",
        "word1 word2 human mean\ntiger cat 7.35\ntiger tiger 10\n",
        "tiger;cat;7.35\ntiger;tiger;10",
        '"Word 1","Word 2","Human (mean)"\n"tiger","cat",7.35\n"tiger","tiger","10.00"\n',
    ):
        (tmp_path / "ws.txt").write_bytes(text.encode())
        expected = {"ws": [("tiger", "cat", 7.35), ("tiger", "tiger", 10.0)]}
        assert read_test_sets([str(tmp_path)]).similarities == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\t1\na\tb\n", "line 2: 'a\\\\tb' is not two words and a number"),
        ("a b\n", "line 1: 'a b' is not two words and a number"),
        (": one\na b c d\na b c\n", "line 3: 3 words, expected four"),
        ("", "the file is empty"),
        (": capital\n", "no question; expected lines of four words"),
    ],
)
def test_other_lines_are_refused(text, message, tmp_path):
    (tmp_path / "pairs.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_test_sets([str(tmp_path / "pairs.txt")])
