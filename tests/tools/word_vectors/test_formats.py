"""Files of word vectors: what is written is read as it was, also by gensim, and broken files are refused by line."""

import gzip

import numpy as np
import pytest

from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.word_vectors import formats
from transformer_jax.tools.word_vectors.formats import FORMATS, read_vectors, write_vectors
from transformer_jax.tools.word_vectors.vectors import WordVectors

FILES = {"word2vec": "v.txt", "word2vec_binary": "v.bin", "glove": "glove.txt", "numpy": "v.npz"}


@pytest.fixture
def vectors():
    words = ("the", "Käse", "日本", "▁the", "3", "-0.5", "a\u2028b")
    matrix = np.random.default_rng(0).normal(size=(len(words), 5)).astype(np.float32)
    matrix[0] = [0, -0.0, 1e-38, 3.4e38, 1 / 3]
    return WordVectors(words, matrix)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_bit_for_bit(vectors, name, tmp_path):
    # U+2028 is a white space to Python, and part of a word here: only ASCII white space separates.
    path = tmp_path / "new" / FILES[name]
    assert write_vectors(path, vectors, name) == path
    for found in (read_vectors(path), read_vectors(path, name)):
        assert tuple(found.words) == vectors.words
        assert found.matrix.tobytes() == vectors.matrix.tobytes()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_an_npz_of_a_very_long_word_is_refused(vectors, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LARGEST_EXCESS", 1000)
    long = WordVectors((*vectors.words[:-1], "x" * 50), vectors.matrix)
    with pytest.raises(DataError, match="'x{40}'...: a word of 50 characters; .*, 1,400 bytes; leave it out"):
        write_vectors(tmp_path / "v.npz", long)
    assert not (tmp_path / "v.npz").exists() and write_vectors(tmp_path / "v.npz", vectors).is_file()


def test_the_ending_chooses_the_format_and_text_tells_itself(vectors, tmp_path):
    text = write_vectors(tmp_path / "v.vec", vectors).read_bytes()
    assert text.startswith(b"7 5\nthe 0.0 -0.0 ") and text.count(b"\n") == 8
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(text))
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(write_vectors(tmp_path / "v.bin", vectors).read_bytes()))
    (tmp_path / "mark.txt").write_bytes(b"\xef\xbb\xbf" + text)
    for name in ("v.txt.gz", "v.bin.gz", "mark.txt"):
        assert read_vectors(tmp_path / name).matrix.tobytes() == vectors.matrix.tobytes()
    (tmp_path / "mark.txt").write_bytes(b"\xef\xbb\xbfthe 1 2\n")
    assert read_vectors(tmp_path / "mark.txt").words == ("the",)
    with pytest.raises(DataError, match="NumPy cuts words"):
        write_vectors(tmp_path / "v.npz", WordVectors((*vectors.words[:-1], "b\0"), vectors.matrix))
    with pytest.raises(ConfigError, match="--output a file that ends in .npz, .bin, .txt, .vec"):
        write_vectors(tmp_path / "v.dat", vectors)
    with pytest.raises(ConfigError, match="'golve' is not one of word2vec, "):
        read_vectors(tmp_path / "v.vec", "golve")
    with pytest.raises(DataError, match="no such file"):
        read_vectors(tmp_path / "missing.txt")


@pytest.mark.filterwarnings("ignore:Exception ignored in.*glove.txt")  # which gensim does not close
def test_gensim_reads_what_is_written_and_writes_what_is_read(vectors, tmp_path):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    plain = WordVectors(vectors.words[:6], vectors.matrix[:6])  # gensim ends a line at U+2028 too
    for name, options in (("v.txt", {}), ("v.bin", {"binary": True}), ("glove.txt", {"no_header": True})):
        write_vectors(tmp_path / name, plain, "glove" if name == "glove.txt" else "")
        loaded = keyed.load_word2vec_format(str(tmp_path / name), **options)
        assert tuple(loaded.index_to_key) == plain.words
        assert loaded.vectors.tobytes() == plain.matrix.tobytes()
        theirs = tmp_path / f"gensim-{name}"
        loaded.save_word2vec_format(str(theirs), binary=name == "v.bin", write_header=name != "glove.txt")
        found = read_vectors(theirs)
        assert set(found.words) == set(plain.words)
        assert found.matrix[found.index["Käse"]].tobytes() == plain.matrix[1].tobytes()


BROKEN_TEXT = [
    (b"2 2\na 1 2\nb 1\n", "line 3: expected a word and 2 numbers, found 'b 1'"),
    (b"a 1 2\nb 1 nan\n", "the vector of 'b' has a value that is not finite"),
    (b"a 1 2\nb 1 2\na 3 4\n", "'a' is word 1 and word 3"),
    (b"3 2\na 1 2\nb 1 2\n", "2 words, but line 1 says 3; the file may be cut short"),
    (b"0 2\n", "line 1: '0 2' is not the number of words and the dimension, both above 0"),
    (b"a\nb\n", "line 1: expected a word and 1 numbers"),
    (b"", "no vectors"),
    (b"a 1 2\n\xff 1 2\n", "line 2: invalid UTF-8"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN_TEXT)
def test_broken_text_is_refused_with_its_line(text, message, tmp_path):
    (tmp_path / "v.txt").write_bytes(text)
    with pytest.raises(DataError, match=f"v.txt.*{message}"):
        read_vectors(tmp_path / "v.txt")


def test_broken_binary_is_refused_with_its_word(vectors, tmp_path):
    whole = write_vectors(tmp_path / "v.bin", vectors).read_bytes()
    archive = write_vectors(tmp_path / "v.npz", vectors).read_bytes()
    for name, content, message in (
        ("broken.bin", whole[:-5], "ends or is damaged in word 7 of 7"),
        ("broken.bin", whole + b"more", "continues after the 7 words"),
        ("broken.bin", whole.replace(b"7 5\n", b"8 5\n", 1), "ends or is damaged in word 8 of 8"),
        ("broken.bin", b"not a header", "line 1: 'not a header' is not the number of words and the dimension"),
        ("cut.bin.gz", gzip.compress(whole)[:-12], "not a complete gzip file"),
        ("broken.npz", archive[: len(archive) // 2], r"not an \.npz of the arrays"),
        ("broken.npz", b"no archive", r"not an \.npz of the arrays"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}.*{message}"):
            read_vectors(tmp_path / name)
