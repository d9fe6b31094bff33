"""Test sets as people distribute them: analogies in sections, judged pairs; other lines refused by number."""

import pytest

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.test_sets import AnalogySection, SimilaritySet, read_test_set, read_test_sets

ANALOGIES = ": capital\nAthens Greece Oslo Norway\n: gram3-comparative\nbad worse big bigger\ngood better old older\n"


def test_analogies(tmp_path):
    (tmp_path / "questions.txt").write_text(ANALOGIES)
    found = read_test_set(tmp_path / "questions.txt")
    assert found.name == "questions"
    assert found.sections[0] == AnalogySection("capital", (("Athens", "Greece", "Oslo", "Norway"),))
    assert [section.is_syntactic for section in found.sections] == [False, True]
    (tmp_path / "plain.txt").write_text("a b c d\n")
    assert read_test_set(tmp_path / "plain.txt").sections == (AnalogySection("plain", (("a", "b", "c", "d"),)),)
    (tmp_path / "broken.txt").write_text(": one\na b c d\na b c\n")
    with pytest.raises(DataError, match="broken.txt, line 3: 3 words, expected four"):
        read_test_set(tmp_path / "broken.txt")


@pytest.mark.parametrize(
    "text",
    ["tiger\tcat\t7.35\r\ntiger\ttiger\t10\r\n", "Word 1,Word 2,Human (mean)\ntiger,cat,7.35\ntiger,tiger,10.00\n",
     "tiger cat 7.35\n\ntiger tiger 10\n", "tiger;cat;7.35\ntiger;tiger;10"],
)  # fmt: skip
def test_judged_pairs(text, tmp_path):
    (tmp_path / "ws.txt").write_bytes(text.encode())
    assert read_test_set(tmp_path / "ws.txt") == SimilaritySet("ws", (("tiger", "cat", 7.35), ("tiger", "tiger", 10.0)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\t1\na\tb\n", "line 2: 'a\\\\tb' is not two words and a number"),
        ("a b\n", "line 1"),
        ("a b x\na b y\n", "line 2"),
        ("", "the file is empty"),
    ],
)
def test_other_lines_are_refused(text, message, tmp_path):
    (tmp_path / "pairs.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_test_set(tmp_path / "pairs.txt")


def test_folders_are_searched(tmp_path):
    (tmp_path / "word-sim").mkdir()
    (tmp_path / "word-sim" / "ws.txt").write_text("a\tb\t1\n")
    (tmp_path / "q.txt").write_text(ANALOGIES)
    (tmp_path / "LICENSE").write_text("yes")
    (tmp_path / "license.txt").write_text("yes")
    found = read_test_sets([str(tmp_path), str(tmp_path / "q.txt")])
    assert [each.name for each in found.analogies] == ["q"]
    assert [each.name for each in found.similarities] == ["ws"]
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no test sets in this folder"):
        read_test_sets([str(tmp_path / "none")])
    (tmp_path / "none" / "q.csv").write_text("a,b,1\n")
    with pytest.raises(DataError, match="2 test sets are named q; rename"):
        read_test_sets([str(tmp_path)])
    with pytest.raises(DataError, match="missing.txt: cannot be read"):
        read_test_sets([str(tmp_path / "missing.txt")])
