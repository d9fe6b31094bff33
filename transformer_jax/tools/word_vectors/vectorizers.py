"""Documents as rows of counts by scikit-learn's vectorizers: one-hot, bag of words, n-grams and TF-IDF."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import regex

from transformer_jax.config.checks import require, require_choice
from transformer_jax.config.errors import ConfigError, DataError
from transformer_jax.data.text_files import read_lines
from transformer_jax.runtime.atomic_files import appearing_file

if TYPE_CHECKING:
    from scipy.sparse import csr_array

KINDS = ("one_hot", "bag_of_words", "ngrams", "tfidf")
LINE_SEPARATOR = re.compile("[\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@dataclass(frozen=True)
class CountingConfig:
    """Conversion of documents to rows.

    ``kind``: one_hot (1 if the term occurs), bag_of_words (counts), ngrams (counts of sequences of 1 to ``n`` terms) or tfidf
    (counts x (ln((1 + documents) / (1 + documents with the term)) + 1), each row divided by its Euclidean norm, also of ``n``
    terms). ``characters``: terms are characters instead of words. ``min_documents``: omits terms of fewer documents.
    ``max_terms``: keeps the most frequent terms, 0 for all.
    """

    kind: str
    n: int = 1
    characters: bool = False
    lowercase: bool = True
    min_documents: int = 1
    max_terms: int = 0

    def __post_init__(self) -> None:
        require_choice("--kind", self.kind, KINDS)
        require(self.n >= 1, "--n", f"{self.n} must be above 0")
        require(self.n == 1 or self.kind in ("ngrams", "tfidf"), "--n", f"applies to ngrams and tfidf, not {self.kind}")
        require(self.min_documents >= 1, "--min_documents", f"{self.min_documents} must be above 0")


class Counted(NamedTuple):
    """``matrix [documents, columns]`` of int32 counts, float32 for tfidf; a document without a known term is a zero row.

    ``terms``: in the order of columns. ``vectorize``: converts other texts to such rows.
    """

    matrix: "csr_array"
    terms: tuple[str, ...]
    vectorize: Callable[[Iterable[str]], "csr_array"]


def count_documents(documents: Iterable[str], counting: CountingConfig, name: str = "corpus") -> Counted:
    """Counts the terms of documents, in alphabetical order; keeps only terms and matrix in memory.

    Raises DataError, which begins with ``name``, if there is no document, or no term that is frequent enough; ConfigError if
    scikit-learn is not installed.
    """
    vectorizer = _vectorizer(counting)
    from scipy.sparse import csr_array

    def rows(found: Any) -> "csr_array":
        matrix = csr_array(found, dtype=np.float32 if counting.kind == "tfidf" else np.int32)
        matrix.sort_indices()
        if counting.kind == "one_hot":
            # Only now, so that max_terms counts occurrences.
            matrix.data[:] = 1
        return matrix

    try:
        matrix = rows(vectorizer.fit_transform(documents))
    except (ConfigError, DataError):
        raise
    except ValueError:
        problem = f"no term is in {counting.min_documents:,} or more documents; expected text, a document a line"
        raise DataError(f"{name}: {problem}") from None
    return Counted(matrix, tuple(vectorizer.get_feature_names_out()), lambda texts: rows(vectorizer.transform(texts)))


def top_terms(row: "csr_array", terms: tuple[str, ...], count: int) -> list[tuple[str, float]]:
    """The terms of a document ``[1, columns]`` with the largest weights, ties by name."""
    weights = [(terms[column], weight) for column, weight in zip(row.indices.tolist(), row.data.tolist(), strict=True)]
    return sorted(weights, key=lambda pair: (-pair[1], pair[0]))[:count]


class Lookup(NamedTuple):
    """The text and the top terms of a document, and the documents nearest to a query: (cosine, number, text)."""

    document: str
    top_terms: list[tuple[str, float]]
    nearest: list[tuple[float, int, str]]


def write_counts(
    counted: Counted, path: Path, stem: Path, *, document: int = 0, query: str | None = None, count: int = 10
) -> Lookup:
    """Writes STEM.npz for ``scipy.sparse.load_npz``, and STEM.vocabulary.txt, of the documents in ``path``, numbered from 1.

    The vocabulary has a term a line; a line separator in a term is written as its escape. Raises ConfigError if ``document``
    does not exist.
    """
    matrix, terms, vectorize = counted
    if document > matrix.shape[0]:
        raise ConfigError(f"--document: {document:,} of {matrix.shape[0]:,}; they count from 1")
    from scipy.sparse import save_npz
    from sklearn.metrics.pairwise import cosine_similarity

    with appearing_file(Path(f"{stem}.npz")) as file:
        save_npz(file, matrix)
    with appearing_file(Path(f"{stem}.vocabulary.txt")) as file:
        escaped = (LINE_SEPARATOR.sub(lambda found: f"\\u{ord(found[0]):04x}", term) for term in terms)
        file.writelines(f"{term}\n".encode() for term in escaped)
    top = top_terms(matrix[[document - 1]], terms, count) if document else []
    # Zero rows have the cosine 0.
    scores = cosine_similarity(matrix, vectorize([query]))[:, 0] if query is not None else np.zeros(0)
    best = [row for row in np.argsort(-scores, kind="stable")[:count].tolist() if scores[row] > 0]
    shown = {document - 1, *best}
    texts = {row: text for row, text in enumerate(read_lines(path)) if row in shown}
    nearest = [(float(scores[row]), row + 1, texts[row]) for row in best]
    return Lookup(texts.get(document - 1, ""), top, nearest)


def cooccurrence_table(
    documents: Iterable[str], counting: CountingConfig, words: Sequence[str], window: int
) -> np.ndarray:
    """Symmetric counts ``[V, V]`` of pairs of ``words`` at most ``window`` words apart in a document."""
    row = {word: number for number, word in enumerate(words)}
    # All other words have the last row.
    table = np.zeros((len(words) + 1, len(words) + 1), np.int64)
    for text in map(_vectorizer(replace(counting, kind="bag_of_words", n=1)).build_analyzer(), documents):
        ids = np.array([row.get(word, len(words)) for word in text], np.int64)
        for distance in range(1, window + 1):
            np.add.at(table, (ids[:-distance], ids[distance:]), 1)
    return (table + table.T)[:-1, :-1]


def _vectorizer(counting: CountingConfig) -> Any:
    """scikit-learn's vectorizer; raises ConfigError if the package is missing."""
    try:
        from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    except ImportError:
        raise ConfigError("scikit-learn is not installed; pip install scikit-learn scipy") from None
    from transformer_jax.data.tokenizers.listed import WORD

    # scikit-learn's own pattern would drop "I" and "a".
    words = {"tokenizer": regex.compile(WORD).findall, "token_pattern": None}
    words = {"analyzer": "char"} if counting.characters else words
    selected = {"min_df": counting.min_documents, "max_features": counting.max_terms or None}
    options = {"ngram_range": (1, counting.n), "lowercase": counting.lowercase, **words, **selected}
    if counting.kind == "tfidf":
        return TfidfVectorizer(**options)
    return CountVectorizer(dtype=np.int32, **options)
