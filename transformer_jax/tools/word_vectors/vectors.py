"""A table of word vectors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transformer_jax.config.errors import DataError, nearest

WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"
"""First character of a subword piece that begins a word."""

SUGGESTED_FROM = 50_000
"""For an unknown word, a similar one is suggested from this number of first words."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Row i of ``matrix``, float32 ``[V, D]``, is the vector of ``words[i]``; frequent words usually come first.

    Raises DataError for a repeated word, a different number of words and rows, and a value that is not finite.
    """

    words: Sequence[str]
    matrix: np.ndarray

    def __post_init__(self) -> None:
        shape = self.matrix.shape
        if self.matrix.ndim != 2 or len(self.words) != shape[0] or 0 in shape:
            raise DataError(
                f"word vectors: {len(self.words):,} words for a matrix {list(shape)}; expected a row for each word"
            )
        if len(self.index) != len(self.words):
            row = next(row for row, word in enumerate(self.words) if self.index[word] != row)
            word = self.words[row]
            raise DataError(f"word vectors: {word!r} is word {row + 1:,} and word {self.index[word] + 1:,}; keep one")
        # Unlike np.isfinite of the matrix, these make no array of its size.
        is_finite = np.isfinite(self.matrix.min(axis=1)) & np.isfinite(self.matrix.max(axis=1))
        if not is_finite.all():
            word = self.words[int(np.argmin(is_finite))]
            raise DataError(f"word vectors: the vector of {word!r} has a value that is not finite")

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def find(self, word: str) -> int | None:
        """The row of a word, or of the piece that begins a word, as written, else in lower case; None if there is none.

        In a table of pieces, "in" is the word, the piece "▁in", rather than the end of "begin".
        """
        forms = (WORD_START + word, word, WORD_START + word.lower(), word.lower())
        return next((row for form in forms if (row := self.index.get(form)) is not None), None)

    def row(self, word: str) -> int:
        """The row that ``find`` finds; raises DataError, which suggests a similar word, if there is none."""
        row = self.find(word)
        if row is None:
            near = nearest(word, (known for known in self.words[:SUGGESTED_FROM] if abs(len(known) - len(word)) <= 2))
            hint = f"; did you mean {near!r}?" if near else ""
            raise DataError(f"{word!r} is not one of the {len(self):,} words{hint}")
        return row

    def lookup(self, words: Iterable[str]) -> tuple[list[int], list[str]]:
        """The rows of the words that have vectors, and the words without vectors, both in order."""
        found = [(word, self.find(word)) for word in words]
        return [row for _, row in found if row is not None], [word for word, row in found if row is None]

    def first(self, count: int) -> "WordVectors":
        """The table of the first ``count`` words (0: all); shares memory."""
        if not 0 < count < len(self):
            return self
        return WordVectors(self.words[:count], self.matrix[:count])
