"""Exact search for the nearest words by cosine, by blocks: memory beyond the table does not grow with it."""

from typing import NamedTuple

import numpy as np

from transformer_jax.tools.word_vectors.vectors import WordVectors

ROWS_AT_ONCE = 4_096
QUERIES_AT_ONCE = 1_024
NOT_A_ROW = -1


class Neighbor(NamedTuple):
    """A word, and the cosine of its vector with the query."""

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

    Row i of ``excluded [Q, E]`` has the rows that query i must not find, -1 for none. Of equal cosines the lower row is first.
    A vector of zeros has cosine 0 with all others. Where fewer than ``count`` rows remain, cosines end in ``-inf``.
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
            # Rows found before are lower than the rows of this block, and a stable order keeps them first.
            order = np.argsort(-both, axis=1, kind="stable")[:, :count]
            rows[some] = np.take_along_axis(both_rows, order, axis=1)
            cosines[some] = np.take_along_axis(both, order, axis=1)
    return Nearest(rows, cosines)


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """The rows of ``[N, D]`` divided by their Euclidean norms, a row of zeros as it is: a copy."""
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(norms > 0, norms, 1).astype(np.float32)


def nearest_words(vectors: WordVectors, word: str, count: int) -> list[Neighbor]:
    """The words nearest to ``word``, itself left out; raises DataError where it has no vector."""
    return neighbors_of_rows(vectors, [vectors.row(word)], count)[0]


def neighbors_of_rows(vectors: WordVectors, rows: list[int], count: int) -> list[list[Neighbor]]:
    """Up to ``count`` words nearest to the word of each row, itself left out."""
    own = np.array(rows, np.int64)
    return _named(vectors, search(vectors.matrix, vectors.matrix[own], count, own[:, None]))


def analogy_queries(matrix: np.ndarray, questions: np.ndarray) -> np.ndarray:
    """3CosAdd (Mikolov et al. 2013, "Linguistic Regularities"; Levy and Goldberg 2014, eq. 3): b - a + c of unit vectors.

    ``questions [Q, 3]`` has the rows of a, b and c in "a is to b as c is to ..."; returns ``[Q, D]``.
    """
    known, index = np.unique(questions, return_inverse=True)
    a, b, c = np.moveaxis(unit_rows(matrix[known])[index.reshape(questions.shape)], 1, 0)
    return b - a + c


def analogy(vectors: WordVectors, a: str, b: str, c: str, count: int) -> list[Neighbor]:
    """The best answers to "a is to b as c is to ...", a, b and c left out; raises DataError for a word without a vector."""
    question = np.array([[vectors.row(word) for word in (a, b, c)]])
    return _named(vectors, search(vectors.matrix, analogy_queries(vectors.matrix, question), count, question))[0]


def _exclude(scores: np.ndarray, columns: np.ndarray) -> None:
    """Sets ``columns [Q, E]`` of each row of ``scores [Q, R]`` to -inf, except columns out of bounds."""
    query, number = np.nonzero((columns >= 0) & (columns < scores.shape[1]))
    scores[query, columns[query, number]] = -np.inf


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


def _named(vectors: WordVectors, found: Nearest) -> list[list[Neighbor]]:
    """For each query the words and cosines that were found."""
    return [
        [Neighbor(vectors.words[row], cosine) for row, cosine in zip(*each, strict=True) if cosine > -np.inf]
        for each in zip(found.rows.tolist(), found.cosines.tolist(), strict=True)
    ]
