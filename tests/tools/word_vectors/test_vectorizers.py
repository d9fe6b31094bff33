"""Counting on the three sentences of every tutorial: the numbers are those that one finds by hand."""

import math

import numpy as np
import pytest
from libraries import library

from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.word_vectors.cooccurrence_table import cooccurrence_table
from transformer_jax.tools.word_vectors.vectorizers import (
    CountingConfig,
    analyzer,
    cosines,
    count_terms,
    in_blocks,
    make_vectorizer,
    top_terms,
)

library("sklearn", "vectors")

SENTENCES = ["I hope you know, I love you", "I hope you know", "I love you"]


def counted(kind, sentences=SENTENCES, **settings):
    found = count_terms(sentences, CountingConfig(kind, **settings))
    return found, make_vectorizer(found)(list(sentences)).toarray()


def test_one_hot():
    found, matrix = counted("one_hot")
    assert found.terms == ("hope", "i", "know", "love", "you")
    assert matrix.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 1], [0, 1, 0, 1, 1]]
    assert found.document_counts.tolist() == [2, 3, 2, 2, 3]


def test_bag_of_words():
    found, matrix = counted("bag_of_words")
    assert found.terms == ("hope", "i", "know", "love", "you")
    assert matrix.tolist() == [[1, 2, 1, 1, 2], [1, 1, 1, 0, 1], [0, 1, 0, 1, 1]]
    assert matrix.dtype == np.int32


def test_bigrams():
    found, matrix = counted("ngrams", n=2)
    words = ("hope", "hope you", "i", "i hope", "i love", "know", "know i", "love", "love you", "you", "you know")
    assert found.terms == words
    first = [1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1]
    assert matrix.tolist() == [first, [1, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1], [0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0]]


def test_tfidf():
    found, matrix = counted("tfidf")
    assert found.terms == ("hope", "i", "know", "love", "you")
    # Of three documents two have hope, know and love, all have i and you: ln(4/3) + 1, and ln(4/4) + 1.
    rare, common = math.log(4 / 3) + 1, 1.0
    weights = np.array([[rare, 2, rare, rare, 2], [rare, 1, rare, 0, 1], [0, common, 0, rare, common]])
    weights /= np.sqrt((weights**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(matrix, weights, rtol=1e-6)
    assert matrix[0].round(4).tolist() == pytest.approx([0.3575, 0.5552, 0.3575, 0.3575, 0.5552], abs=1e-4)


def test_tfidf_of_blocks_is_that_of_scikit_learn():
    from sklearn.feature_extraction.text import TfidfVectorizer

    theirs = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", ngram_range=(1, 2)).fit(SENTENCES)
    found, matrix = counted("tfidf", n=2)
    assert found.terms == tuple(theirs.get_feature_names_out())
    np.testing.assert_allclose(matrix, theirs.transform(SENTENCES).toarray(), rtol=1e-6)


def test_characters_case_and_selection():
    assert counted("ngrams", ["aB a"], n=2, characters=True)[0].terms == (" ", " a", "a", "ab", "b", "b ")
    assert counted("bag_of_words", lowercase=False)[0].terms == ("I", "hope", "know", "love", "you")
    assert counted("bag_of_words", min_documents=3)[0].terms == ("i", "you")
    found, matrix = counted("bag_of_words", max_terms=3)
    assert found.terms == ("hope", "i", "you")  # of those with two each the first by name
    assert matrix.tolist() == [[1, 2, 2], [1, 1, 1], [0, 1, 1]]
    assert counted("bag_of_words", ["x x x x", "a b", "a b"], max_terms=1)[0].terms == ("x",)


def test_hashing_needs_no_terms_and_keeps_counts():
    found, matrix = counted("bag_of_words", hashing_columns=512)
    assert (found.terms, found.num_documents, matrix.shape) == ((), 3, (3, 512))
    assert sorted(matrix[0][matrix[0] > 0].tolist()) == [1, 1, 1, 2, 2]
    assert matrix.sum(axis=1).tolist() == [7, 4, 3]
    assert matrix.dtype == np.int32
    weights = counted("tfidf", hashing_columns=512)[1]
    plain = counted("tfidf")[1]
    np.testing.assert_allclose(np.sort(weights[weights > 0]), np.sort(plain[plain > 0]), rtol=1e-6)
    assert counted("one_hot", hashing_columns=512)[1].max() == 1


def test_documents_without_words_are_rows_of_zeros():
    found, matrix = counted("tfidf", ["a b", "", "?!"])
    assert found.num_documents == 3
    assert (matrix != 0).tolist() == [[True, True], [False, False], [False, False]]


@pytest.mark.parametrize(
    ("sentences", "settings", "message"),
    [
        ([], {}, "corpus: there are no documents"),
        ([], {"hashing_columns": 8}, "corpus: there are no documents"),
        (["?!", ""], {}, "corpus: the 2 documents have no word"),
        (["a b", "a c"], {"min_documents": 3}, "no term is in 3 documents, at most in 2"),
    ],
)
def test_a_corpus_without_terms_is_refused(sentences, settings, message):
    with pytest.raises(DataError, match=message):
        counted("bag_of_words", sentences, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "tf_idf"}, "--kind: 'tf_idf' is not one of one_hot"),
        ({"kind": "one_hot", "n": 2}, "--n: is for ngrams and tfidf, not one_hot"),
        ({"kind": "ngrams", "n": 0}, "--n: 0 must be above 0"),
        ({"kind": "tfidf", "hashing_columns": 8, "max_terms": 3}, "hashed terms have no names to select by"),
        ({"kind": "tfidf", "min_documents": 0}, "--min_documents: 0 must be above 0"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        CountingConfig(**settings)


def test_the_nearest_documents_and_the_top_terms():
    found = count_terms(SENTENCES, CountingConfig("bag_of_words"))
    vectorize = make_vectorizer(found)
    rows = vectorize([*SENTENCES, "other"])
    np.testing.assert_allclose(cosines(rows, vectorize(["love you"])), [3 / 22**0.5, 1 / 8**0.5, 2 / 6**0.5, 0])
    assert cosines(rows, vectorize(["nothing known"])).tolist() == [0, 0, 0, 0]
    assert top_terms(rows[[0]], found.terms, 3) == [("i", 2), ("you", 2), ("hope", 1)]


def test_blocks_are_bounded_in_documents_and_characters(monkeypatch):
    monkeypatch.setattr("transformer_jax.tools.word_vectors.vectorizers.DOCUMENTS_AT_ONCE", 3)
    monkeypatch.setattr("transformer_jax.tools.word_vectors.vectorizers.CHARACTERS_AT_ONCE", 5)
    assert list(in_blocks(["a", "b", "c", "d", "eeeee", "f"])) == [["a", "b", "c"], ["d", "eeeee"], ["f"]]


def test_cooccurrences():
    analyze = analyzer(CountingConfig("bag_of_words"))
    words, table = cooccurrence_table(["a b c", "b a"], analyze, window=1)
    assert words == ["a", "b", "c"]
    assert table.tolist() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]
    assert cooccurrence_table(["a b c", "b a"], analyze, window=5)[1].tolist() == [[0, 2, 1], [2, 0, 1], [1, 1, 0]]
    assert cooccurrence_table(["a a"], analyze, window=1)[1].tolist() == [[2]]
    with pytest.raises(DataError, match="0 different words"):
        cooccurrence_table(["?"], analyze, window=1)
