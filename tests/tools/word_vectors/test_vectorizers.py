"""Counting on the three sentences of every tutorial: the numbers are found by hand."""

import math

import numpy as np
import pytest
from libraries import library

from transformer_jax.config import DataError
from transformer_jax.tools.word_vectors.vectorizers import CountingConfig, count_documents, write_counts

library("sklearn", "vectors")

SENTENCES = ["I hope you know, I love you", "I hope you know", "I love you"]


def counted(kind, sentences=SENTENCES, **settings):
    found = count_documents(sentences, CountingConfig(kind, **settings))
    return found.terms, found.matrix.toarray()


def test_one_hot_and_tfidf():
    assert [list(each) for each in counted("one_hot")[1]] == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 1], [0, 1, 0, 1, 1]]
    terms, matrix = counted("tfidf")
    assert terms == ("hope", "i", "know", "love", "you")
    # Of three documents two have hope, know and love, all have i and you: ln(4/3) + 1, and ln(4/4) + 1.
    rare, common = math.log(4 / 3) + 1, 1.0
    weights = np.array([[rare, 2, rare, rare, 2], [rare, 1, rare, 0, 1], [0, common, 0, rare, common]])
    weights /= np.sqrt((weights**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(matrix, weights, rtol=1e-6)


@pytest.mark.parametrize(
    ("sentences", "settings", "message"),
    [
        (["?!", ""], {}, "corpus: no term is in 1 or more documents"),
        (["a b", "a c"], {"min_documents": 3}, "no term is in 3 or more documents"),
    ],
)
def test_a_corpus_without_terms_is_refused(sentences, settings, message):
    with pytest.raises(DataError, match=message):
        counted("bag_of_words", sentences, **settings)


def test_a_vocabulary_has_a_term_a_line(tmp_path):
    (tmp_path / "text").write_text("a\u2028b\vc\x85\n", encoding="utf-8", newline="")
    found = count_documents(["a\u2028b\vc\x85"], CountingConfig("bag_of_words", characters=True))
    write_counts(found, tmp_path / "text", tmp_path / "m")
    lines = (tmp_path / "m.vocabulary.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["\\u000b", "a", "b", "c", "\\u0085", "\\u2028"]
