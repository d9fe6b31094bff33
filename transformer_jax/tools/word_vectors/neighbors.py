"""Exact search for the nearest words by cosine, by blocks: memory beyond the table does not grow with it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.tools.word_vectors.vectors import WordVectors

ROWS_AT_ONCE = 4_096
QUERIES_AT_ONCE = 1_024
NOT_A_ROW = -1


class Neighbor(NamedTuple):
    """A word, and the cosine of its vector with that of the query."""

    word: str
    cosine: float


class Nearest(NamedTuple):
    """The nearest rows of each query and their cosines, both ``[Q, K]``, the nearest first."""

    rows: np.ndarray
    cosines: np.ndarray


def search(
    matrix: np.ndarray,
    queries: np.ndarray,
    count: int,
    excluded: np.ndarray | None = None,
) -> Nearest:
    """The ``count`` rows of ``matrix [V, D]`` with the largest cosine to each of ``queries [Q, D]``.

    Row i of ``excluded [Q, E]`` has the rows that query i may not find, -1 for none. Of equal cosines the lower row is first.
    A vector of zeros has the cosine 0 with every other. Where less than ``count`` rows remain, cosines end in ``-inf``.
    """
    queries = unit_rows(queries)
    excluded = np.full((len(queries), 1), NOT_A_ROW) if excluded is None else excluded
    count = min(count, len(matrix))
    rows = np.full((len(queries), count), NOT_A_ROW, np.int64)
    cosines = np.full((len(queries), count), -np.inf, np.float32)
    for first_row in range(0, len(matrix), ROWS_AT_ONCE):
        block = unit_rows(matrix[first_row : first_row + ROWS_AT_ONCE]).T
        for first_query in range(0, len(queries), QUERIES_AT_ONCE):
            some = slice(first_query, first_query + QUERIES_AT_ONCE)
            scores = queries[some] @ block
            _exclude(scores, excluded[some] - first_row)
            best = _largest(scores, count)
            both_rows = np.concatenate([rows[some], best + first_row], axis=1)
            both = np.concatenate([cosines[some], np.take_along_axis(scores, best, axis=1)], axis=1)
            # Rows found before are lower than those of this block, and a stable order keeps them first.
            order = np.argsort(-both, axis=1, kind="stable")[:, :count]
            rows[some] = np.take_along_axis(both_rows, order, axis=1)
            cosines[some] = np.take_along_axis(both, order, axis=1)
    return Nearest(rows, cosines)


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """The rows of ``[N, D]`` divided by their Euclidean norms, a row of zeros as it is: a copy."""
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(norms > 0, norms, 1).astype(np.float32)


def nearest_words(vectors: WordVectors, word: str, count: int) -> list[Neighbor]:
    """The words nearest to ``word``, itself left out; raises DataError where it is not there."""
    row = vectors.row(word)
    return _named(vectors, search(vectors.matrix, vectors.matrix[[row]], count, np.array([[row]])))


def analogy_queries(matrix: np.ndarray, questions: np.ndarray) -> np.ndarray:
    """3CosAdd (Mikolov et al. 2013, "Linguistic Regularities"; Levy and Goldberg 2014, eq. 3): b - a + c of unit vectors.

    ``questions [Q, 3]`` has the rows of a, b and c in "a is to b as c is to ..."; returns ``[Q, D]``.
    """
    known, place = np.unique(questions, return_inverse=True)
    unit = unit_rows(matrix[known])
    place = place.reshape(questions.shape)
    return unit[place[:, 1]] - unit[place[:, 0]] + unit[place[:, 2]]


def analogy(vectors: WordVectors, a: str, b: str, c: str, count: int) -> list[Neighbor]:
    """The best answers to "a is to b as c is to ...", a, b and c left out; raises DataError for a word that is not there."""
    question = np.array([[vectors.row(word) for word in (a, b, c)]])
    return _named(vectors, search(vectors.matrix, analogy_queries(vectors.matrix, question), count, question))


def _exclude(scores: np.ndarray, columns: np.ndarray) -> None:
    """Sets to -inf, in each row of ``scores [Q, R]``, those of its ``columns [Q, E]`` that lie in it."""
    query, place = np.nonzero((columns >= 0) & (columns < scores.shape[1]))
    scores[query, columns[query, place]] = -np.inf


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """The columns of the ``count`` largest of each row, the lower column first among equals."""
    if count == 1:
        return scores.argmax(axis=1)[:, None]
    if count >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    smallest = -np.partition(-scores, count - 1, axis=1)[:, count - 1 : count]
    chosen = np.empty((len(scores), count), np.int64)
    for query, (row, limit) in enumerate(zip(scores, smallest, strict=True)):
        above = np.flatnonzero(row >= limit)
        chosen[query] = above[np.argsort(-row[above], kind="stable")[:count]]
    return chosen


def _named(vectors: WordVectors, found: Nearest) -> list[Neighbor]:
    pairs = zip(found.rows[0].tolist(), found.cosines[0].tolist(), strict=True)
    return [Neighbor(vectors.words[row], cosine) for row, cosine in pairs if cosine > -np.inf]


def neighbors_of_rows(vectors: WordVectors, rows: Sequence[int], count: int) -> list[list[str]]:
    """Up to ``count`` words nearest to each of some words, themselves left out."""
    own = np.array(rows, np.int64)
    found = search(vectors.matrix, vectors.matrix[own], count, own[:, None])
    return [
        [vectors.words[row] for row, cosine in zip(*each, strict=True) if cosine > -np.inf]
        for each in zip(found.rows.tolist(), found.cosines.tolist(), strict=True)
    ]
