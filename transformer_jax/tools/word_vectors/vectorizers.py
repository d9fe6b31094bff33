"""Documents as rows of counts by scikit-learn's vectorizers: one-hot, bag of words, n-grams and TF-IDF."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from transformer_jax.config.checks import require, require_choice
from transformer_jax.config.errors import ConfigError, DataError
from transformer_jax.data.text_files import read_lines
from transformer_jax.runtime.atomic_files import appearing_file

if TYPE_CHECKING:
    from scipy.sparse import csr_array

KINDS = ("one_hot", "bag_of_words", "ngrams", "tfidf")
TOKEN_PATTERN = r"(?u)\b\w+\b"
"""Words of one letter or more; scikit-learn's own default would drop "I" and "a"."""
MOST_COLUMNS = 1 << 28
"""Maximum number of columns of hashed terms; TF-IDF weights take eight bytes per column."""
MOST_WORDS = 2_000
"""Maximum number of words of a co-occurrence table."""


@dataclass(frozen=True)
class CountingConfig:
    """Conversion of documents to rows.

    ``kind``: one_hot (1 if the term occurs), bag_of_words (counts), ngrams (counts of sequences of 1 to ``n`` terms) or tfidf
    (counts x (ln((1 + documents) / (1 + documents with the term)) + 1), each row divided by its Euclidean norm, also of ``n``
    terms). ``characters``: terms are characters instead of words. ``min_documents``: omits terms of fewer documents.
    ``max_terms``: keeps the most frequent terms, 0 for all. ``hashing_columns``: if above 0, the column of a term is its hash,
    and there is no vocabulary.
    """

    kind: str
    n: int = 1
    characters: bool = False
    lowercase: bool = True
    min_documents: int = 1
    max_terms: int = 0
    hashing_columns: int = 0

    def __post_init__(self) -> None:
        require_choice("--kind", self.kind, KINDS)
        require(self.n >= 1, "--n", f"{self.n} must be above 0")
        require(self.n == 1 or self.kind in ("ngrams", "tfidf"), "--n", f"applies to ngrams and tfidf, not {self.kind}")
        require(self.min_documents >= 1, "--min_documents", f"{self.min_documents} must be above 0")
        selects = self.min_documents > 1 or self.max_terms > 0
        problem = "hashed terms cannot be selected; leave out --min_documents and --max_terms"
        require(not (self.hashing_columns and selects), "--hashing_columns", problem)
        problem = f"{self.hashing_columns:,} must be at most {MOST_COLUMNS:,}"
        require(self.hashing_columns <= MOST_COLUMNS, "--hashing_columns", problem)


class Counted(NamedTuple):
    """``matrix [documents, columns]`` of int32 counts, float32 for tfidf; a document without a known term is a zero row.

    ``terms``: in the order of columns, empty if they are hashed. ``vectorize``: converts other texts to such rows.
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
    from sklearn.feature_extraction.text import TfidfTransformer

    documents = iter(documents)
    first = next(documents, None)
    if first is None:
        raise DataError(f"{name}: there are no documents; expected one on each line")
    try:
        counts = csr_array(vectorizer.fit_transform(itertools.chain([first], documents)))
    except (ConfigError, DataError):
        raise
    except ValueError:
        rare = f"no term is in {counting.min_documents:,} documents; lower --min_documents"
        problem = rare if counting.min_documents > 1 else "no document has a word; expected text"
        raise DataError(f"{name}: {problem}") from None
    terms = () if counting.hashing_columns else tuple(vectorizer.get_feature_names_out())
    weighting = TfidfTransformer().fit(counts) if counting.kind == "tfidf" else None

    def rows(counts: "csr_array") -> "csr_array":
        counts.sort_indices()
        if counting.kind == "one_hot":
            counts.data[:] = 1
        if weighting is not None:
            return csr_array(weighting.transform(counts), dtype=np.float32)
        return counts.astype(np.int32)

    return Counted(rows(counts), terms, lambda texts: rows(csr_array(vectorizer.transform(texts))))


def top_terms(row: "csr_array", terms: tuple[str, ...], count: int) -> list[tuple[str, float]]:
    """The terms of a document ``[1, columns]`` with the largest weights, ties by name; hashed terms are named by column."""
    weights = zip(row.indices.tolist(), row.data.tolist(), strict=True)
    named = [(terms[column] if terms else f"column {column}", weight) for column, weight in weights]
    return sorted(named, key=lambda pair: (-pair[1], pair[0]))[:count]


def cosines(rows: "csr_array", query: "csr_array") -> np.ndarray:
    """The cosine of each document ``[documents, columns]`` with ``query [1, columns]``; 0 for zero rows."""
    products = (rows @ query.T.tocsr()).toarray()[:, 0].astype(np.float64)
    squares = np.sqrt(rows.multiply(rows).sum(axis=1)) * np.sqrt(query.multiply(query).sum())
    return np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)


class CountedCorpus(NamedTuple):
    """The counts, the top terms of a document, and the documents nearest to a query: (cosine, number, text)."""

    counted: Counted
    document: str
    top_terms: list[tuple[str, float]]
    nearest: list[tuple[float, int, str]]


def count_corpus(
    path: Path, counting: CountingConfig, stem: Path, *, document: int = 0, query: str | None = None, count: int = 10
) -> CountedCorpus:
    """Writes STEM.npz for ``scipy.sparse.load_npz``, and STEM.vocabulary.txt; documents are lines, numbered from 1.

    Raises DataError if the file cannot be read, and as ``count_documents`` does; ConfigError if ``document`` does not exist.
    """
    counted = count_documents(read_lines(path), counting, str(path))
    matrix, terms, vectorize = counted
    if document > matrix.shape[0]:
        raise ConfigError(f"--document: {document:,} of {matrix.shape[0]:,}; they count from 1")
    from scipy.sparse import save_npz

    stem.parent.mkdir(parents=True, exist_ok=True)
    with appearing_file(Path(f"{stem}.npz")) as file:
        save_npz(file, matrix)
    if not counting.hashing_columns:
        with appearing_file(Path(f"{stem}.vocabulary.txt")) as file:
            file.writelines(f"{term}\n".encode() for term in terms)
    top = top_terms(matrix[[document - 1]], terms, count) if document else []
    scores = cosines(matrix, vectorize([query])) if query is not None else np.zeros(0)
    best = [row for row in np.argsort(-scores, kind="stable")[:count].tolist() if scores[row] > 0]
    last = max([document, *(row + 1 for row in best)])
    texts = {
        row: text for row, text in enumerate(itertools.islice(read_lines(path), last)) if row in (document - 1, *best)
    }
    nearest = [(float(scores[row]), row + 1, texts[row]) for row in best]
    return CountedCorpus(counted, texts.get(document - 1, ""), top, nearest)


def cooccurrence_table(documents: Iterable[str], counting: CountingConfig, window: int) -> tuple[list[str], np.ndarray]:
    """Words in alphabetical order, and symmetric counts ``[V, V]`` of pairs at most ``window`` words apart in a document.

    Raises DataError unless there are 1 to ``MOST_WORDS`` words.
    """
    texts = list(map(_vectorizer(counting).build_analyzer(), documents))
    words = sorted({word for text in texts for word in text})
    if not 0 < len(words) <= MOST_WORDS:
        raise DataError(f"co-occurrences: {len(words):,} different words; a table takes 1 to {MOST_WORDS:,}")
    row = {word: number for number, word in enumerate(words)}
    table = np.zeros((len(words), len(words)), np.int64)
    for text in texts:
        ids = np.array([row[word] for word in text], np.int64)
        for distance in range(1, window + 1):
            np.add.at(table, (ids[:-distance], ids[distance:]), 1)
    return words, table + table.T


def _vectorizer(counting: CountingConfig) -> Any:
    """scikit-learn's vectorizer; raises ConfigError if the package is missing."""
    try:
        from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
    except ImportError:
        raise ConfigError("scikit-learn is not installed; pip install scikit-learn scipy") from None
    words = {"analyzer": "char"} if counting.characters else {"token_pattern": TOKEN_PATTERN}
    options = {"ngram_range": (1, counting.n), "lowercase": counting.lowercase, "dtype": np.int32, **words}
    if counting.hashing_columns:
        # Without alternating signs, colliding terms add up to counts.
        return HashingVectorizer(n_features=counting.hashing_columns, alternate_sign=False, norm=None, **options)
    return CountVectorizer(min_df=counting.min_documents, max_features=counting.max_terms or None, **options)
