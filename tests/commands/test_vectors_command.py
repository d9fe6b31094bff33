"""The commands vectorize and vectors, on small files."""

import json
import os

import numpy as np
import pytest
from libraries import library

from transformer_jax.__main__ import main
from transformer_jax.tools.pictures import panels
from transformer_jax.tools.word_vectors.formats import read_vectors

library("sklearn", "vectors")

SENTENCES = "I hope you know, I love you\nI hope you know\nI love you\n"
VECTORS = "man 1 0 0\nwoman 1 1 0\nking 1 0 1\nqueen 1 1 1\napple -1 0 0.1\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "docs.txt").write_text(SENTENCES)
    (tmp_path / "v.txt").write_text(VECTORS)
    (tmp_path / "questions.txt").write_text(": family\nman king woman queen\nman king aunt uncle\n")
    (tmp_path / "pairs.txt").write_text("man\twoman\t3\nking\tapple\t1\nking\tqueen\t9\n")
    return tmp_path


def said(capsys, *arguments):
    assert main(list(map(str, arguments))) == 0
    return capsys.readouterr().out


def test_vectorize(files, capsys):
    paths = [f"--input={files}/docs.txt", f"--output={files}/m"]
    pictures = [f"--picture={files}/m.png", f"--cooccurrences={files}/c.png"]
    flags = ["--query=love", "--document=2", "--count=3", *paths, *pictures]
    out = said(capsys, "vectorize", "--kind=bag_of_words", *flags)
    lines = [" ".join(line.split()) for line in out.split("\n")]
    assert {"documents 3", "columns 5 terms", "values 12 density 80 %"} <= set(lines)
    assert "top terms of document 2: I hope you know\n  hope  1\n  i     1\n  know  1\n" in out
    assert "nearest to 'love'\n  0.5774  3  I love you\n  0.3015  1  I hope" in out
    assert (files / "m.vocabulary.txt").read_text().split() == ["hope", "i", "know", "love", "you"]
    assert np.load(files / "m.npz")["data"].tolist() == [1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1]
    assert (files / "m.png").read_bytes()[:4] == (files / "c.png").read_bytes()[:4] == b"\x89PNG"


def test_a_pipe_is_not_read_twice(files, capsys):
    flags = ["vectorize", "--kind=bag_of_words", f"--output={files}/m"]
    for options, status in (["--query=love"], 2), ([], 2), (["--document=0"], 0):
        end, start = os.pipe()
        os.write(start, SENTENCES.encode())
        os.close(start)
        assert main([*flags, f"--input=/dev/fd/{end}", *options]) == status
        os.close(end)
        assert (files / "m.npz").exists() == (status == 0)
    assert "is a pipe, which cannot be read twice; give a file, or --document=0" in capsys.readouterr().err


def test_vectorize_warns_about_text_without_spaces(files, capsys):
    counting = ["vectorize", "--kind=bag_of_words", f"--input={files}/docs.txt", f"--output={files}/m"]
    assert main(counting) == 0 and capsys.readouterr().err == ""
    (files / "docs.txt").write_text("私は犬が好きです\nฉันชอบสุนัขมาก\n", encoding="utf-8")
    assert main(counting) == 0
    assert "--input: no spaces between words, so terms are whole phrases; --characters" in capsys.readouterr().err
    assert main([*counting, "--characters"]) == 0 and capsys.readouterr().err == ""


def test_cooccurrences_are_of_the_words_that_are_kept(files, capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(panels, "draw_heat_map", lambda matrix, path, **names: drawn.append((matrix.tolist(), names)))
    (files / "docs.txt").write_text("i love you\nlove you and me, love\n")
    counting = ["--kind=ngrams", "--min_documents=2", f"--input={files}/docs.txt", f"--output={files}/m"]
    said(capsys, "vectorize", *counting, f"--cooccurrences={files}/c.png", "--window=2")
    ((table, names),) = drawn
    assert (files / "m.vocabulary.txt").read_text() == "love\nlove you\nyou\n"
    assert (names["rows"], names["columns"]) == (["love", "you"],) * 2
    # Words that are left out count in distances: the last love is 3 words from you.
    assert table == [[0, 2], [2, 0]]


def test_evaluate_and_search(files, capsys):
    vectors = f"--vectors={files}/v.txt"
    sets = f"--test_sets={files}/questions.txt,{files}/pairs.txt"
    assert "questions, overall" in said(capsys, "vectors", "evaluate", vectors, sets, f"--json={files}/report.json")
    report = json.loads((files / "report.json").read_text())
    assert report["analogies"][0]["overall"]["accuracy"] == 1.0
    assert report["similarities"][0]["spearman"] == pytest.approx(1.0)
    analogy = said(capsys, "vectors", "analogy", "king", "man", "Woman", vectors)
    assert analogy.startswith("king - man + Woman\n  queen")
    out = said(capsys, "vectors", "neighbors", "king", "Queen", "duck", vectors, "--count=1")
    assert out.split("\n")[:5] == ["king", "  queen  0.8165", "", "Queen", "  woman  0.8165"]
    assert "1 of 3 words have no vector: duck" in out


def test_convert_and_draw(files, capsys):
    vectors = f"--vectors={files}/v.txt"
    out = said(capsys, "vectors", "convert", vectors, f"--output={files}/g.txt", "--output_format=glove")
    assert "5 words, 3 dimensions" in out
    assert list(read_vectors(files / "g.txt").words) == ["man", "woman", "king", "queen", "apple"]
    out = said(capsys, "vectors", "map", vectors, f"--output={files}/map", "--words=king,queen,man,king,duck")
    assert "1 of 5 words have no vector: duck" in out
    assert '"words":["king","queen","man"]' in (files / "map.html").read_text() and (files / "map.png").is_file()
    (files / "pieces.txt").write_text("in 1 0\n▁in 0 1\ning 1 1\nthe 2 1\n", encoding="utf-8")
    said(capsys, "vectors", "map", f"--vectors={files}/pieces.txt", f"--output={files}/map", "--top=3")
    assert '"words":["in","▁in","ing"]' in (files / "map.html").read_text(encoding="utf-8")
    out = said(capsys, "vectors", "picture", "king", "man", "woman", vectors, f"--output={files}/royal.png")
    assert out.startswith("king - man + woman: queen\n") and (files / "royal.png").is_file()


def test_wrong_arguments_are_named(files, capsys):
    (files / "three.txt").write_text("a 1 2\nb 2 1\nc 3 3\n")
    vectors, few = f"--vectors={files}/v.txt", f"--vectors={files}/three.txt"
    counting, sets = ["vectorize", "--kind=tfidf", f"--input={files}/docs.txt"], [f"--test_sets={files}/pairs.txt"]
    (files / "large.txt").write_text(" ".join(f"w{number}" for number in range(130)))
    large = [f"--input={files}/large.txt", f"--output={files}/n"]
    cases = [
        (["vectors"], "'' is not an action; give one of evaluate, neighbors, analogy"),
        (["vectors", "neighbours", "king"], "did you mean neighbors?"),
        (["vectors", "analogy", "king", "man", vectors], "takes three words, such as king man woman, found king man"),
        (["vectors", "analogy", "king", "man", "woman"], "--vectors: give a file of word vectors, or a run"),
        (["vectors", "neighbors", "king", f"--workdir={files}"], f"--workdir: {files} is not a run"),
        (["vectors", "neighbors", "king", vectors, "--checkpoint=last"], "--checkpoint: is for --workdir"),
        (["vectors", "neighbors", "quean", vectors], "'quean' is not one of the 5 words; did you mean 'queen'?"),
        (["vectors", "neighbors", "king", vectors, "--seed=1"], "--seed: vectors neighbors does not take it; it takes"),
        (["vectors", "evaluate", vectors], "--test_sets: is required"),
        (["vectors", "picture", "a", "b", "c", few, f"--output={files}/p.png"], "no other word has a vector"),
        (["vectors", "convert", vectors], "--output: is required"),
        (["vectors", "convert", vectors, "--output=gs://b/v.bin"], "--output: gs://b/v.bin is in an object store"),
        (
            ["vectors", "evaluate", vectors, *sets, "--json=s3://b/r.json"],
            "--json: s3://b/r.json is in an object store",
        ),
        ([*counting, f"--output={files}"], "is a folder; give the files a name"),
        ([*counting, f"--output={files}/n", "--picture=gs://b/p.png"], "--picture: gs://b/p.png is in an object store"),
        ([*counting, *large, f"--picture={files}/p.png"], "--picture: the matrix is 1 x 130"),
        ([*counting, *large, f"--cooccurrences={files}/p.png"], "--cooccurrences: the matrix is 130 x 130"),
        ([*counting, *large, "--characters", f"--cooccurrences={files}/p.png"], "--cooccurrences: counts words, not"),
    ]
    for arguments, message in cases:
        assert main(arguments) == 2, arguments
        assert message in capsys.readouterr().err
    assert not [*files.glob("n.*"), *files.glob("p.*")]
