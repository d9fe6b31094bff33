"""A table of word vectors: the words, their rows, and which words it does not have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from transformer_jax.config.errors import DataError, nearest

WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"
"""How the pieces of a subword tokenizer begin where a word does."""

SUGGESTED_FROM = 50_000
"""So many of the first words are compared with a word that is not there."""


class Lookup(NamedTuple):
    """The rows of the words that are in a table, in their order, and the words that are not."""

    rows: np.ndarray
    unknown: list[str]


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Row i of ``matrix``, float32 ``[V, D]``, is the vector of ``words[i]``; frequent words usually come first.

    Raises DataError, from the constructor, when a word appears twice, when words and rows differ in number, and on a value
    that is not finite.
    """

    words: Sequence[str]
    matrix: np.ndarray

    def __post_init__(self) -> None:
        shape = self.matrix.shape
        if self.matrix.ndim != 2 or len(self.words) != shape[0] or 0 in shape:
            raise DataError(
                f"word vectors: {len(self.words):,} words and a matrix {list(shape)}; expected a row a word"
            )
        if self.matrix.dtype != np.float32:
            raise DataError(f"word vectors: the matrix is {self.matrix.dtype}; expected float32")
        if len(self.index) != len(self.words):
            row = next(row for row, word in enumerate(self.words) if self.index[word] != row)
            word = self.words[row]
            raise DataError(f"word vectors: {word!r} is word {row + 1:,} and word {self.index[word] + 1:,}; keep one")
        if (bad := first_bad_row(self.matrix)) is not None:
            raise DataError(f"word vectors: the vector of {self.words[bad]!r} has a value that is not finite")

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of every word."""
        return {word: row for row, word in enumerate(self.words)}

    @property
    def dimension(self) -> int:
        """Numbers a word has: D."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def find(self, word: str) -> int | None:
        """The row of a word as it is written, or as a piece that begins a word; else of it in lower case; None without any."""
        forms = (word, WORD_START + word, word.lower(), WORD_START + word.lower())
        return next((row for form in forms if (row := self.index.get(form)) is not None), None)

    def row(self, word: str) -> int:
        """The row of a word, found as ``find`` does; raises DataError, with a similar word, where it is not there."""
        row = self.find(word)
        if row is None:
            near = nearest(word, (known for known in self.words[:SUGGESTED_FROM] if abs(len(known) - len(word)) <= 2))
            hint = f"; did you mean {near!r}?" if near else ""
            raise DataError(f"{word!r} is not one of the {len(self):,} words{hint}")
        return row

    def lookup(self, words: Iterable[str]) -> Lookup:
        """The rows of those words that are there, and the others, each in their order."""
        found = [(word, self.find(word)) for word in words]
        rows = [row for _, row in found if row is not None]
        return Lookup(np.array(rows, np.int64), [word for word, row in found if row is None])

    def first(self, count: int) -> "WordVectors":
        """The table of the first ``count`` words, the whole one for 0; shares its memory."""
        if not 0 < count < len(self):
            return self
        return WordVectors(self.words[:count], self.matrix[:count])


def first_bad_row(matrix: np.ndarray) -> int | None:
    """The first row of ``[V, D]`` with a value that is not finite; None where all are. Takes memory for some rows only."""
    for start in range(0, len(matrix), 65_536):
        bad = ~np.isfinite(matrix[start : start + 65_536]).all(axis=1)
        if bad.any():
            return start + int(np.argmax(bad))
    return None
