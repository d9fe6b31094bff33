"""Test sets as people distribute them, and scores of word vectors: exact counts, coverage
stated."""

import numpy as np
import pytest
from libraries import library
from tools.word_vectors.word_vectors_settings import royal

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.keyed_vectors import keyed_vectors
from transformer_jax.tools.word_vectors.vector_evaluation import evaluate_vectors, read_test_sets

library("gensim", "vectors")


def scored(text, tmp_path, vectors=None):
    (tmp_path / "set.txt").write_text(text, encoding="utf-8", newline="")
    return evaluate_vectors(vectors or royal(), read_test_sets([str(tmp_path / "set.txt")]))


def test_analogies_are_counted_by_section_and_kind(tmp_path):
    # The nearest to man - king + queen is the question word queen itself; without the three, woman
    # is right.
    report = scored(
        ": family\nman king woman queen\nKing man Queen woman\nman king woman apple\n"
        ": currency\ndollar usa euro europe\n:gram1\nman woman king queen\nman woman king duck\n",
        tmp_path,
    )
    ((_, parts, overall),) = report.scores
    assert [(part.name, part.value, part.covered, part.total) for part in parts] == [
        ("family", 2 / 3, 3, 3),
        ("currency", None, 0, 1),
        ("gram1", 1.0, 1, 2),
        ("semantic", 2 / 3, 3, 4),
        ("syntactic", 1.0, 1, 2),
    ]
    assert (overall.value, overall.covered, overall.total) == (3 / 4, 4, 6)
    assert report.headline() == {
        "analogies": 3 / 4,
        "analogies_semantic": pytest.approx(2 / 3),
        "analogies_syntactic": 1.0,
        "coverage": 4 / 6,
    }
    assert "set: analogies, 3 sections" in report.table() and not report.without_coverage()


def test_similarities_rank_by_cosine(tmp_path):
    report = scored("man woman 3\nMan King 2\nman apple 0\nking queen 5\nduck man 9\n", tmp_path)
    ((_, _, score),) = report.scores
    assert (score.covered, score.total) == (4, 5)
    # Cosines 0.71, 0.71, -1.0 and 0.82: ranks 2.5, 2.5, 1, 4 beside 3, 2, 1, 4.
    assert score.value == pytest.approx(np.corrcoef([2.5, 2.5, 1, 4], [3, 2, 1, 4])[0, 1])
    assert report.headline()["spearman_set"] == report.headline()["similarity"] == score.value


@pytest.mark.parametrize(("text", "covered"), [("duck drake 1\ngoose geese 2\n", 0), ("man king 1\n", 1)])
def test_too_little_coverage_gives_no_score(text, covered, tmp_path):
    report = scored(text, tmp_path)
    score = report.scores[0].overall
    assert (score.value, score.covered) == (None, covered)
    assert report.without_coverage() == ([] if covered else ["set"])
    assert report.headline() == {"coverage": covered / score.total}
    # All scores are equal.
    assert scored("man king 1\nman woman 1\n", tmp_path).scores[0].overall.value is None


def test_a_piece_that_begins_a_word_stands_for_it(tmp_path):
    pieces = keyed_vectors(["a", "▁a", "▁b", "c"], np.array([[0, 1], [1, 0], [1, 0.1], [0.5, 1]], np.float32))
    assert scored("a b 2\na c 1\nb c 1.5\n", tmp_path, pieces).scores[0].overall == ("set", pytest.approx(1.0), 3, 3)


@pytest.mark.parametrize("space", "\u00a0\u2009\u3000\u2028\u0085\x1c")
def test_other_spaces_are_parts_of_words(space, tmp_path):
    words = [f"new{space}york", "city", f"old{space}{space}town", "village", "x\u200b"]
    vectors = keyed_vectors(words, np.array([[1, 0], [1, 1], [-1, 0], [-1, 1], [0, 1]], np.float32))
    pairs = scored(f"{words[0]} city 2\n{words[2]} city 1\n{words[0]} {words[2]} 0\n", tmp_path, vectors)
    assert pairs.scores[0].overall == ("set", pytest.approx(1.0), 3, 3)
    analogies = scored(f": a\n{words[0]} city {words[2]} village\n", tmp_path, vectors)
    assert analogies.scores[0].overall == ("set", 1.0, 1, 1)


def test_words_of_marks_are_words(tmp_path):
    table = np.array([[1, 0], [1, 1], [-1, 0], [-1, 1]], np.float32)
    vectors = keyed_vectors([":)", ":(", "#a", "#b"], table)
    analogies = scored(": faces\n:) :( #a #b\n:( :) #b #a\n", tmp_path, vectors)
    assert [(part.name, part.total) for part in analogies.scores[0].parts[:1]] == [("faces", 2)]
    # Cosines 0.71, -1.0 and -0.71.
    pairs = scored(":) :( 3\n#a :) 2\n#a :( 1\n", tmp_path, vectors)
    assert pairs.scores[0].overall == ("set", pytest.approx(0.5), 3, 3)


SIMLEX = "word1\tword2\tPOS\tSimLex999\tconc(w1)\tSD(SimLex)\n"
NAMED = "columns 'word1', 'word2', 'SimLex999'; its heading, line 1, left out"


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("tiger\tcat\t7.35\r\ntiger\ttiger\t10\r\n", "without a heading"),
        ("Word 1,Word 2,Human (mean)\ntiger,cat,7.35\ntiger,tiger,10\n", "'Word 1', 'Word 2', 'Human (mean)'; its"),
        ('"Word 1","Word 2","Human (mean)"\n"tiger","cat",7.35\n"tiger","tiger","10"\n', "'Human (mean)'"),
        (SIMLEX + "tiger\tcat\tN\t7.35\t2.72\t1\ntiger\ttiger\tN\t10\t2.75\t1\n", NAMED),
        (SIMLEX.replace("\t", " ") + "tiger cat N 7.35 2.72 1\ntiger tiger N 10 2.75 1\n", NAMED),
        # RareWords: the mean, and ten ratings. MEN: spaces. Both have no heading.
        ("tiger\tcat\t7.35\t7\t8\ntiger\ttiger\t10\t10\t10\n", "without a heading"),
    ],
)
def test_rated_pairs_are_read_by_their_headings(text, reading, tmp_path):
    (tmp_path / "ws.txt").write_bytes(text.encode())
    (test_set,) = read_test_sets([str(tmp_path)])
    assert (test_set.kind, test_set.totals) == ("similarity", {"": 2})
    assert list(test_set.lines) == ["tiger\tcat\t7.35", "tiger\ttiger\t10"]
    assert test_set.reading.startswith("rated pairs") and reading in test_set.reading


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\t1\na\tb\t2\na\tb\n", "line 3: 'a<U.0009>b' is not two words and a number"),
        (
            "a\u00a0b 1\na b 2\n",
            "line 1: 'a<U.00A0>b 1' is neither two words and a number nor a heading of the columns of",
        ),
        ("a\u3000b\n", "line 1: 'a<U.3000>b' is neither four words nor two words and a number"),
        ("", "the file is empty"),
        (": capital\n", "no question; expected lines of four words"),
    ],
)
def test_other_lines_are_refused(text, message, tmp_path):
    (tmp_path / "pairs.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_test_sets([str(tmp_path / "pairs.txt")])
