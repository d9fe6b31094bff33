"""Files of word vectors through gensim: what is written is read as it was, and broken files are
refused; lookup."""

import gzip
import sys

import numpy as np
import pytest
from libraries import library
from tools.word_vectors.word_vectors_settings import royal

from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.word_vectors.keyed_vectors import (
    FORMATS,
    find,
    keyed_vectors,
    read_vectors,
    require_word,
    write_vectors,
)

library("gensim", "vectors")
FILES = {"word2vec": "v.txt", "word2vec_binary": "v.bin", "glove": "glove.txt"}


@pytest.fixture
def vectors():
    words = ("the", "Käse", "日本", "▁the", "3", "-0.5", "a\u2028b", "new\u00a0york")
    matrix = np.random.default_rng(0).normal(size=(len(words), 5)).astype(np.float32)
    matrix[0] = [0, -0.0, 1e-38, 3e8, 1 / 3]
    return keyed_vectors(words, matrix)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_bit_for_bit(vectors, name, tmp_path):
    # U+2028 and U+00A0 are white space to Python, and part of a word here: only ASCII white space
    # separates.
    path = tmp_path / "new" / FILES[name]
    assert write_vectors(path, vectors, name) == path
    for read in (read_vectors(path), read_vectors(path, name)):
        assert read.index_to_key == vectors.index_to_key
        assert read.vectors.tobytes() == vectors.vectors.tobytes()
    first = read_vectors(path, limit=3)
    assert (first.index_to_key, first.vectors.shape) == (vectors.index_to_key[:3], (3, 5))
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_ending_chooses_the_format_and_text_tells_itself(vectors, tmp_path):
    text = write_vectors(tmp_path / "v.vec", vectors).read_bytes()
    assert text.startswith(b"8 5\nthe 0.0 -0.0 ") and text.count(b"\n") == 9
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(text))
    assert read_vectors(tmp_path / "v.txt.gz").vectors.tobytes() == vectors.vectors.tobytes()
    with pytest.raises(DataError, match="word 2 is 'b c', and white space separates"):
        write_vectors(tmp_path / "w.txt", keyed_vectors(["a", "b c"], np.eye(2, dtype=np.float32)))
    with pytest.raises(ConfigError, match="--output a file that ends in .bin, .txt, .vec"):
        write_vectors(tmp_path / "v.npz", vectors)
    with pytest.raises(ConfigError, match="'golve' is not one of word2vec, "):
        read_vectors(tmp_path / "v.vec", "golve")
    with pytest.raises(DataError, match="no such file"):
        read_vectors(tmp_path / "missing.txt")


BINARY = ((b"a", [1, 2]), (b"a", [3, 4]), (b"b", [5, 6]))
BROKEN_TEXT = [
    (b"2 2\na 1 2\nb 1\n", "line 3: expected a word and 2 numbers, .*, not 'b 1'"),
    (b"a 1 2\nb 1 x\n", "line 2: 'b 1 x' does not end in 2 numbers"),
    (b"a 1 2\nb 1 nan\n", "the vector of 'b' has a value that is not finite"),
    (b"3 2\na 1 2\nb 1 2\n", "2 words, but line 1 says 3; the file may be cut short"),
    (b"a 1 2\nb 1 2c 3 4\n", "line 2: expected a word and 2 numbers, .*"),
    (b"a 1 2\nb 1 2 c 3 4\n", "line 2: .* not 'b 1 2 c 3 4'"),
    (b"a 1 2\nb 3 1 2\n", "line 2: expected a word and 2 numbers, .* not 'b 3 1 2'"),
    (b"1 2\nroute 66 4 x\n", "line 2: 'route 66 4 x' does not end in 2 numbers"),
    ("a\u00a0b\n".encode(), "line 1: .* not 'a<U.00A0>b'"),
    (b"2 2\na 1 2\nb\xff 1 2\n", "line 3: invalid UTF-8 in 'b\ufffd 1 2'"),
    (b"a b 1 2\nc\xff 1 2\n", "line 2: invalid UTF-8"),
    (b"0 2\n", "line 1: '0 2' is not the number of words and the dimension"),
    (b"", "no vectors"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN_TEXT)
def test_broken_text_is_refused(text, message, tmp_path):
    (tmp_path / "v.txt").write_bytes(text)
    with pytest.raises(DataError, match=f"v.txt.*{message}"):
        read_vectors(tmp_path / "v.txt")


def test_words_with_spaces_are_read_where_the_dimension_is_known(tmp_path):
    for text in ("4 2\nroute 66 1 2\n. . . 3 4\nroute 66 5 6\nb 7 8\n", "b 7 8\nroute 66 . 1 2\n. . . 3 4\n"):
        (tmp_path / "v.txt").write_text(text.replace("66 ", "66\u00a0a "), encoding="utf-8")
        read = read_vectors(tmp_path / "v.txt")
        assert {word: row.tolist() for word, row in zip(read.index_to_key, read.vectors, strict=True)} == {
            "route 66\u00a0a" + " ." * (text[0] == "b"): [1, 2],
            ". . .": [3, 4],
            "b": [7, 8],
        }
        assert len(read_vectors(tmp_path / "v.txt", limit=2)) == 2
    (tmp_path / "v.txt").write_text("new york 1 2\nb 7 8\n")
    assert read_vectors(tmp_path / "v.txt").index_to_key == ["new york", "b"]


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "glove.txt"])
def test_of_a_repeated_word_the_first_vector_counts(name, tmp_path):
    lines = [b"a 1 2", b"a 3 4", b"b 5 6"] if name != "v.bin" else []
    header = [] if name == "glove.txt" else [b"3 2"]
    binary = b"".join(word + b" " + np.array(row, np.float32).tobytes() for word, row in BINARY)
    (tmp_path / name).write_bytes(b"\n".join([*header, *lines]) + b"\n" + (binary if name == "v.bin" else b""))
    read = read_vectors(tmp_path / name)
    assert (read.index_to_key, read.vectors.tolist()) == (["a", "b"], [[1, 2], [5, 6]])
    assert len(read.most_similar("a")) == 1


def test_broken_binary_is_refused(vectors, tmp_path):
    whole = write_vectors(tmp_path / "v.bin", vectors).read_bytes()
    for name, content in (
        ("broken.bin", whole[:-5]),
        ("broken.bin", whole.replace(b"8 5\n", b"9 5\n", 1)),
        ("broken.bin", b"not a header"),
        ("cut.bin.gz", gzip.compress(whole)[:-12]),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: not a whole file of the format word2vec_binary"):
            read_vectors(tmp_path / name)


def test_without_gensim_a_sentence_says_what_to_install(vectors, tmp_path, monkeypatch):
    file = write_vectors(tmp_path / "v.txt", vectors)
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(ConfigError, match="gensim, .*, is not installed; pip install gensim"):
        read_vectors(file)


def test_a_word_is_found_as_written_else_in_lower_case():
    vectors = keyed_vectors(["us", "US", "paris"], np.eye(3, 2, dtype=np.float32))
    assert [find(vectors, word) for word in ("us", "US", "Us", "PARIS", "Berlin")] == ["us", "US", "us", "paris", None]
    pieces = keyed_vectors(["in", "▁in", "ing"], np.eye(3, 2, dtype=np.float32))
    assert [find(pieces, word) for word in ("in", "In", "▁in", "ing")] == ["▁in", "▁in", "▁in", "ing"]
    with pytest.raises(DataError, match="'quean' is not one of the 5 words; did you mean 'queen'"):
        require_word(royal(), "quean")
