"""Documents as rows of counts: one-hot, bag of words, n-grams and TF-IDF, by scikit-learn's vectorizers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from transformer_jax.config.checks import require, require_choice
from transformer_jax.config.errors import ConfigError, DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

KINDS = ("one_hot", "bag_of_words", "ngrams", "tfidf")
TOKEN_PATTERN = r"(?u)\b\w+\b"
"""Words of one letter or more; scikit-learn's own default would drop "I" and "a"."""
MOST_COLUMNS = 1 << 28
"""Of hashed terms; weights of TF-IDF take eight bytes for each."""
DOCUMENTS_AT_ONCE = 2_000
CHARACTERS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class CountingConfig:
    """How documents become rows.

    ``kind``: one_hot (1 where the term occurs), bag_of_words (how often), ngrams (how often, sequences of 1 to ``n``
    terms) or tfidf (counts x (ln((1 + documents) / (1 + documents with the term)) + 1), each row divided by its Euclidean
    norm). ``n`` also holds for tfidf. ``characters``: terms are characters, not words. ``min_documents`` leaves out terms
    of fewer documents, ``max_terms`` all but the most frequent, 0 for none; ``hashing_columns`` above 0 takes the column
    of a term from its hash, which needs no vocabulary.
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
        require(self.n == 1 or self.kind in ("ngrams", "tfidf"), "--n", f"is for ngrams and tfidf, not {self.kind}")
        require(self.min_documents >= 1, "--min_documents", f"{self.min_documents} must be above 0")
        selects = self.min_documents > 1 or self.max_terms > 0
        problem = "hashed terms have no names to select by; leave --min_documents and --max_terms out"
        require(not (self.hashing_columns and selects), "--hashing_columns", problem)
        problem = f"{self.hashing_columns:,} must be at most {MOST_COLUMNS:,}"
        require(self.hashing_columns <= MOST_COLUMNS, "--hashing_columns", problem)


@dataclass(frozen=True)
class Counted:
    """What the first pass over a corpus found; ``terms`` in the order of their columns, empty where they are hashed.

    ``document_counts [columns]``: in how many documents each term is.
    """

    config: CountingConfig
    terms: tuple[str, ...]
    document_counts: np.ndarray
    num_documents: int

    @property
    def num_columns(self) -> int:
        """Terms, or columns of the hash."""
        return len(self.document_counts)


def count_terms(documents: Iterable[str], config: CountingConfig, name: str = "corpus") -> Counted:
    """The first pass: terms in alphabetical order, and in how many documents they are; memory holds the terms.

    Raises DataError, which begins with ``name``, when there is no document, no term, or none that is frequent enough.
    """
    if config.hashing_columns:
        return _count_hashed(documents, config, name)
    analyze = analyzer(config)
    totals: Counter[str] = Counter()
    in_documents: Counter[str] = Counter()
    num_documents = 0
    for text in documents:
        found = analyze(text)
        totals.update(found)
        in_documents.update(set(found))
        num_documents += 1
    _require_documents(num_documents, name)
    if not totals:
        raise DataError(f"{name}: the {num_documents:,} documents have no word; expected text")
    kept = [term for term, count in in_documents.items() if count >= config.min_documents]
    if not kept:
        most = max(in_documents.values())
        raise DataError(
            f"{name}: no term is in {config.min_documents:,} documents, at most in {most:,}; lower --min_documents"
        )
    if 0 < config.max_terms < len(kept):
        kept = sorted(kept, key=lambda term: (-totals[term], term))[: config.max_terms]
    kept.sort()
    counts = np.fromiter((in_documents[term] for term in kept), np.int64, len(kept))
    return Counted(config, tuple(kept), counts, num_documents)


def make_vectorizer(counted: Counted) -> Callable[[list[str]], "csr_array"]:
    """The second pass: from documents to the rows of a sparse matrix ``[documents, columns]``.

    int32 counts, float32 for tfidf; a document without any known term is a row of zeros.
    """
    from scipy.sparse import csr_array

    config = counted.config
    if config.hashing_columns:
        counting = _hashing_vectorizer(config)
    else:
        counting = _count_vectorizer(config, {term: column for column, term in enumerate(counted.terms)})
    if config.kind != "tfidf":
        return lambda texts: csr_array(counting.transform(texts), dtype=np.int32)
    weighting = _sklearn().TfidfTransformer()
    weighting.idf_ = np.log((1 + counted.num_documents) / (1 + counted.document_counts)) + 1
    return lambda texts: csr_array(weighting.transform(counting.transform(texts)), dtype=np.float32)


def in_blocks(documents: Iterable[str]) -> Iterator[list[str]]:
    """Lists of documents that are bounded in number and in characters, but for a document longer than that."""
    block: list[str] = []
    characters = 0
    for text in documents:
        block.append(text)
        characters += len(text)
        if len(block) >= DOCUMENTS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield block
            block, characters = [], 0
    if block:
        yield block


def analyzer(config: CountingConfig) -> Callable[[str], list[str]]:
    """The terms of a document, in their order, as often as they occur."""
    return _count_vectorizer(config).build_analyzer()


def top_terms(row: "csr_array", terms: tuple[str, ...], count: int) -> list[tuple[str, float]]:
    """The terms of a document ``[1, columns]`` with the largest weights, equals by name; of hashed ones the columns."""
    weights = zip(row.indices.tolist(), row.data.tolist(), strict=True)
    named = [(terms[column] if terms else f"column {column}", weight) for column, weight in weights]
    return sorted(named, key=lambda pair: (-pair[1], pair[0]))[:count]


def cosines(block: "csr_array", query: "csr_array") -> np.ndarray:
    """The cosine of each document of ``[documents, columns]`` with ``query [1, columns]``; 0 where one is all zeros."""
    products = (block @ query.T.tocsr()).toarray()[:, 0].astype(np.float64)
    squares = np.sqrt(block.multiply(block).sum(axis=1)) * np.sqrt(query.multiply(query).sum())
    return np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)


def _options(config: CountingConfig) -> dict[str, Any]:
    words = {"analyzer": "char"} if config.characters else {"token_pattern": TOKEN_PATTERN}
    return {"ngram_range": (1, config.n), "lowercase": config.lowercase, "binary": config.kind == "one_hot", **words}


def _count_vectorizer(config: CountingConfig, columns: dict[str, int] | None = None) -> Any:
    """Reads and cuts the text as every kind does; binary where only occurrence counts."""
    return _sklearn().CountVectorizer(vocabulary=columns, dtype=np.int32, **_options(config))


def _hashing_vectorizer(config: CountingConfig) -> Any:
    """Every term counts upwards, so that counts stay counts: terms that meet in a column are added."""
    options = _options(config) | {"n_features": config.hashing_columns, "alternate_sign": False, "norm": None}
    return _sklearn().HashingVectorizer(**options)


def _count_hashed(documents: Iterable[str], config: CountingConfig, name: str) -> Counted:
    """Documents only where weights do not need more; for tfidf also how many have something in each column."""
    counting = _hashing_vectorizer(config) if config.kind == "tfidf" else None
    counts = np.zeros(config.hashing_columns, np.int64)
    num_documents = 0
    for block in in_blocks(documents):
        num_documents += len(block)
        if counting is not None:
            counts += np.bincount(counting.transform(block).indices, minlength=config.hashing_columns)
    _require_documents(num_documents, name)
    return Counted(config, (), counts, num_documents)


def _require_documents(num_documents: int, name: str) -> None:
    if not num_documents:
        raise DataError(f"{name}: there are no documents; expected one on each line")


def _sklearn() -> Any:
    """scikit-learn's vectorizers; raises ConfigError that says how to install them."""
    try:
        from sklearn.feature_extraction import text
    except ImportError:
        raise ConfigError("scikit-learn is not installed; pip install scikit-learn scipy") from None
    return text
