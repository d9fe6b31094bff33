"""Exact search for the nearest words by cosine."""

from typing import NamedTuple

import numpy as np

from transformer_jax.tools.word_vectors.vectors import WordVectors

QUERIES_AT_ONCE = 64


class Neighbor(NamedTuple):
    """A word, and the cosine of its vector with the query."""

    word: str
    cosine: float


def search(matrix: np.ndarray, queries: np.ndarray, count: int, excluded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` rows of ``matrix [V, D]`` with the largest cosine to each of ``queries [Q, D]``.

    Returns rows and cosines, both ``[Q, K]``; cosines descend, among equal ones the lower row is first. ``excluded [Q, E]``:
    rows to exclude for each query. A zero vector has cosine 0 with all others. If fewer than ``count`` rows remain, the last
    cosines are ``-inf``.
    """
    norms = np.sqrt(np.einsum("VD,VD->V", matrix, matrix))
    queries, norms = unit_rows(queries), np.where(norms > 0, norms, 1)
    rows = np.zeros((len(queries), min(count, len(matrix))), np.int64)
    cosines = np.zeros(rows.shape, np.float32)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        part = slice(start, start + QUERIES_AT_ONCE)
        scores = queries[part] @ matrix.T / norms
        np.put_along_axis(scores, excluded[part], -np.inf, axis=1)
        rows[part] = [_largest(each, rows.shape[1]) for each in scores]
        cosines[part] = np.take_along_axis(scores, rows[part], axis=1)
    return rows, cosines


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Indices of the ``count`` largest scores, the lower index first among equals."""
    least = np.partition(scores, -count)[-count]
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:count]]


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """A copy of ``[N, D]`` with rows divided by their Euclidean norms; zero rows are unchanged."""
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(norms > 0, norms, 1).astype(np.float32)


def nearest_words(vectors: WordVectors, word: str, count: int) -> list[Neighbor]:
    """The words nearest to ``word``, except itself; raises DataError if it has no vector."""
    return neighbors_of_rows(vectors, [vectors.row(word)], count)[0]


def neighbors_of_rows(vectors: WordVectors, rows: list[int], count: int) -> list[list[Neighbor]]:
    """Up to ``count`` words nearest to the word of each row, except itself."""
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
    """The best answers to "a is to b as c is to ...", except a, b and c; raises DataError for a word without a vector."""
    question = np.array([[vectors.row(word) for word in (a, b, c)]])
    return _named(vectors, search(vectors.matrix, analogy_queries(vectors.matrix, question), count, question))[0]


def _named(vectors: WordVectors, found: tuple[np.ndarray, np.ndarray]) -> list[list[Neighbor]]:
    """The words and cosines found for each query."""
    return [
        [Neighbor(vectors.words[row], cosine) for row, cosine in zip(*each, strict=True) if cosine > -np.inf]
        for each in zip(*(array.tolist() for array in found), strict=True)
    ]
