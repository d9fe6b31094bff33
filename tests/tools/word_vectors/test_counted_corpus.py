"""A corpus on disk: what is written block by block is what is counted at once, and SciPy reads it."""

import lzma

import numpy as np
import pytest
from libraries import library

from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.word_vectors import vectorizers
from transformer_jax.tools.word_vectors.counted_corpus import count_corpus
from transformer_jax.tools.word_vectors.sparse_files import read_sparse, write_sparse
from transformer_jax.tools.word_vectors.vectorizers import CountingConfig, count_terms, make_vectorizer

library("sklearn", "vectors")
scipy_sparse = library("scipy.sparse", "vectors")

LINES = ["I hope you know, I love you", "I hope you know", "", "I love you", "snow in Oslo"]


@pytest.mark.parametrize("kind", ["tfidf", "bag_of_words"])
@pytest.mark.parametrize("ending", ["", ".xz"])
def test_blocks_of_two_documents_are_the_whole(kind, ending, tmp_path, monkeypatch):
    monkeypatch.setattr(vectorizers, "DOCUMENTS_AT_ONCE", 2)
    path = tmp_path / f"docs.txt{ending}"
    text = "".join(f"{line}\n" for line in LINES).encode()
    path.write_bytes(lzma.compress(text) if ending else text)
    found = count_corpus(path, CountingConfig(kind), tmp_path / "out" / "m", document=4, query="I love snow", count=2)
    whole = count_terms(LINES, CountingConfig(kind))
    expected = make_vectorizer(whole)(LINES)
    matrix = scipy_sparse.load_npz(tmp_path / "out" / "m.npz")
    assert (matrix.toarray() == expected.toarray()).all()
    assert (matrix.dtype, matrix.format) == (expected.dtype, "csr")
    assert (tmp_path / "out" / "m.vocabulary.txt").read_text() == "".join(f"{term}\n" for term in whole.terms)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["m.npz", "m.vocabulary.txt"]
    assert found.matrix.shape == (5, 8)
    assert (found.matrix.num_values, found.matrix.num_empty_rows) == (expected.nnz, 1)
    assert found.matrix.density == expected.nnz / 40
    assert found.document == "I love you"
    assert {term for term, _ in found.top_terms} < {"i", "love", "you"}
    # "I love you" is in the second block, "snow in Oslo" in the third: the best of all blocks are kept.
    assert found.nearest[0][1:] == (4, "I love you")
    assert len(found.nearest) == 2


def test_what_cannot_be_counted(tmp_path):
    (tmp_path / "docs.txt").write_text("a b\n")
    with pytest.raises(ConfigError, match="--document: 2 of 1"):
        count_corpus(tmp_path / "docs.txt", CountingConfig("one_hot"), tmp_path / "m", document=2)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="empty.txt: there are no documents"):
        count_corpus(tmp_path / "empty.txt", CountingConfig("one_hot"), tmp_path / "m")
    with pytest.raises(DataError, match="missing.txt: cannot be read"):
        count_corpus(tmp_path / "missing.txt", CountingConfig("one_hot"), tmp_path / "m")
    (tmp_path / "bytes.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, match="bytes.txt, line 2: invalid UTF-8"):
        count_corpus(tmp_path / "bytes.txt", CountingConfig("one_hot"), tmp_path / "m")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bytes.txt", "docs.txt", "empty.txt"]


def test_a_matrix_without_rows_or_that_fails_leaves_nothing_behind(tmp_path):
    def blocks():
        yield scipy_sparse.csr_array(np.eye(2))
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_sparse(tmp_path / "m.npz", blocks(), 2, np.float32)
    assert list(tmp_path.iterdir()) == []
    assert write_sparse(tmp_path / "m.npz", iter([]), 3, np.float32).shape == (0, 3)
    assert read_sparse(tmp_path / "m.npz").shape == (0, 3)
    (tmp_path / "m.npz").write_text("no")
    with pytest.raises(DataError, match="not a sparse matrix"):
        read_sparse(tmp_path / "m.npz")
