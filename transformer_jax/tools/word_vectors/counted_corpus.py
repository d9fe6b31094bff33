"""A corpus counted: two passes over its lines, the matrix and the vocabulary written, questions answered on the way."""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from transformer_jax.config.errors import ConfigError, DataError
from transformer_jax.data.cached_stores import BuildProgress
from transformer_jax.data.text_files import raw_lines, sentence_of_line
from transformer_jax.runtime.atomic_files import appearing_file
from transformer_jax.tools.word_vectors.sparse_files import WrittenMatrix, vocabulary_file, write_sparse
from transformer_jax.tools.word_vectors.vectorizers import (
    Counted,
    CountingConfig,
    cosines,
    count_terms,
    in_blocks,
    make_vectorizer,
    top_terms,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class CountedCorpus:
    """What was written, the document asked for and its top terms, and the nearest documents: (cosine, number, text)."""

    matrix: WrittenMatrix
    document: str
    top_terms: list[tuple[str, float]]
    nearest: list[tuple[float, int, str]]


def count_corpus(
    path: Path, config: CountingConfig, stem: Path, *, document: int = 0, query: str | None = None, count: int = 10
) -> CountedCorpus:
    """Writes STEM.npz and STEM.vocabulary.txt; documents are lines, numbered from 1.

    Raises DataError for a file that cannot be read, an empty corpus, and a ``document`` that there is none of; ConfigError
    where scikit-learn is not installed.
    """
    counted = count_terms(_documents(path, "counting"), config, str(path))
    if document > counted.num_documents:
        raise ConfigError(f"--document: {document:,} of {counted.num_documents:,}; number them from 1")
    answers = _Answers(counted, document, query, count)
    blocks = answers.watch(in_blocks(_documents(path, "writing")))
    dtype = np.float32 if config.kind == "tfidf" else np.int32
    matrix = write_sparse(Path(f"{stem}.npz"), blocks, counted.num_columns, dtype)
    if matrix.shape[0] != counted.num_documents:
        raise DataError(
            f"{path}: {counted.num_documents:,} documents at first, then {matrix.shape[0]:,}; it has changed"
        )
    if not config.hashing_columns:
        with appearing_file(vocabulary_file(stem)) as file:
            file.writelines(f"{term}\n".encode() for term in counted.terms)
    nearest = sorted(answers.nearest, key=lambda found: (-found[0], found[1]))
    return CountedCorpus(matrix, answers.text, answers.top, nearest)


class _Answers:
    """Looks at the documents as they pass: memory holds the few that answer."""

    def __init__(self, counted: Counted, document: int, query: str | None, count: int) -> None:
        self._counted, self._document, self._count = counted, document, count
        self._vectorize = make_vectorizer(counted)
        self._query = None if query is None else self._vectorize([query])
        self.text = ""
        self.top: list[tuple[str, float]] = []
        self.nearest: list[tuple[float, int, str]] = []

    def watch(self, blocks: Iterator[list[str]]) -> Iterator["csr_array"]:
        """The rows of each block, once they were looked at."""
        first = 1
        for texts in blocks:
            rows = self._vectorize(texts)
            if 0 <= (place := self._document - first) < len(texts):
                self.text = texts[place]
                self.top = top_terms(rows[[place]], self._counted.terms, self._count)
            if self._query is not None:
                scores = cosines(rows, self._query)
                best = np.argsort(-scores, kind="stable")[: self._count]
                found = [(float(scores[row]), first + int(row), texts[row]) for row in best if scores[row] > 0]
                both = itertools.chain(self.nearest, found)
                self.nearest = heapq.nsmallest(self._count, both, key=lambda each: (-each[0], each[1]))
            first += len(texts)
            yield rows


def _documents(path: Path, doing: str) -> Iterator[str]:
    """The lines of a file, with progress; the size of the text in a compressed file is not known before."""
    total = path.stat().st_size if path.is_file() and path.suffix not in (".gz", ".xz") else 0
    progress = BuildProgress(path.name, total, unit="bytes", doing=doing)
    for number, raw in enumerate(raw_lines(path), start=1):
        progress.advance(len(raw))
        yield sentence_of_line(raw.removesuffix(b"\n"), str(path), number)
