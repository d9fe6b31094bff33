"""The command vectors, on small files."""

import json

import pytest
from libraries import library

from transformer_jax.__main__ import main
from transformer_jax.tools.word_vectors.keyed_vectors import read_vectors

library("gensim", "vectors")
library("sklearn", "vectors")
# gensim does not close files of GloVe.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*txt")

VECTORS = "man 1 0 0\nwoman 1 1 0\nking 1 0 1\nqueen 1 1 1\napple -1 0 0.1\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "v.txt").write_text(VECTORS)
    (tmp_path / "questions.txt").write_text(": family\nman king woman queen\nman king aunt uncle\n")
    (tmp_path / "pairs.txt").write_text("man\twoman\t3\nking\tapple\t1\nking\tqueen\t9\n")
    return tmp_path


def said(capsys, *arguments):
    assert main(list(map(str, arguments))) == 0
    return capsys.readouterr().out


def test_evaluate_and_search(files, capsys):
    vectors = f"--vectors={files}/v.txt"
    sets = f"--test_sets={files}/questions.txt,{files}/pairs.txt"
    out = said(capsys, "vectors", "evaluate", vectors, sets, f"--json={files}/report.json")
    assert "questions: analogies, 1 sections\npairs: rated pairs, columns 1, 2 and 3; without a heading" in out
    questions, pairs = json.loads((files / "report.json").read_text())["test_sets"]
    assert (questions["kind"], questions["overall"]["value"], questions["overall"]["covered"]) == ("analogies", 1.0, 1)
    assert (pairs["kind"], pairs["overall"]["value"]) == ("similarity", pytest.approx(1.0))
    out = said(capsys, "vectors", "neighbors", "king", "Queen", "duck", vectors, "--count=1")
    assert out.split("\n")[:5] == ["king", "  queen  0.8165", "", "Queen", "  woman  0.8165"]
    assert "1 of 3 words have no vector: duck" in out


def test_a_test_set_without_coverage_is_an_error(files, capsys):
    (files / "animals.txt").write_text("duck drake 2\ngoose gander 3\n")
    sets = f"--test_sets={files}/pairs.txt,{files}/animals.txt"
    assert main(["vectors", "evaluate", f"--vectors={files}/v.txt", sets]) == 2
    out, err = capsys.readouterr()
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "animals - 0 of 2 0.0 %" in rows and "pairs 1.0000 3 of 3 100.0 %" in rows
    assert "animals: coverage is 0, since no question or pair has vectors for all its words" in err


def test_convert_and_draw(files, capsys):
    vectors = f"--vectors={files}/v.txt"
    out = said(capsys, "vectors", "convert", vectors, f"--output={files}/g.txt", "--output_format=glove")
    assert "5 words, 3 dimensions" in out
    assert read_vectors(files / "g.txt").index_to_key == ["man", "woman", "king", "queen", "apple"]
    out = said(capsys, "vectors", "map", vectors, f"--output={files}/map", "--words=king,queen,man,king,duck")
    assert "1 of 5 words have no vector: duck" in out
    assert '"words":["king","queen","man"]' in (files / "map.html").read_text() and (files / "map.png").is_file()
    (files / "pieces.txt").write_text("in 1 0\n▁in 0 1\ning 1 1\nthe 2 1\n", encoding="utf-8")
    said(capsys, "vectors", "map", f"--vectors={files}/pieces.txt", f"--output={files}/map", "--top=3")
    assert '"words":["in","▁in","ing"]' in (files / "map.html").read_text(encoding="utf-8")


def test_wrong_arguments_are_named(files, capsys):
    vectors = f"--vectors={files}/v.txt"
    sets = [f"--test_sets={files}/pairs.txt"]
    cases = [
        (["vectors"], "'' is not an action; give one of evaluate, neighbors, convert"),
        (["vectors", "neighbors", "king"], "--vectors: give a file of word vectors, or a run"),
        (["vectors", "neighbors", "king", f"--workdir={files}"], f"--workdir: {files} is not a run"),
        (["vectors", "neighbors", "quean", vectors], "'quean' is not one of the 5 words; did you mean 'queen'?"),
        (["vectors", "convert", vectors], "--output: is required"),
        (["vectors", "evaluate", vectors, *sets, "--json=s3://b/r.json"], "--json: s3://b/r.json is in an object stor"),
        (["vectors", "convert", vectors, f"--output={files}/v.npz"], "--output_format: '' is not a format; give one o"),
    ]
    for arguments, message in cases:
        assert main(arguments) == 2, arguments
        assert message in capsys.readouterr().err
