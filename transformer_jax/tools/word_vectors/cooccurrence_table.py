"""Which words of a few sentences occur near each other: a dense matrix, to look at."""

from collections.abc import Callable, Iterable

import numpy as np

from transformer_jax.config.errors import DataError

MOST_WORDS = 2_000


def cooccurrence_table(
    documents: Iterable[str], analyze: Callable[[str], list[str]], window: int
) -> tuple[list[str], np.ndarray]:
    """The words in alphabetical order and the symmetric matrix ``[V, V]`` of how often two are at most ``window`` words apart.

    Pairs do not cross the end of a document. Raises DataError for more than 2,000 words, and for none.
    """
    texts = [analyze(text) for text in documents]
    words = sorted({word for text in texts for word in text})
    if not 0 < len(words) <= MOST_WORDS:
        raise DataError(f"co-occurrences: {len(words):,} different words; a table takes 1 to {MOST_WORDS:,}")
    row = {word: number for number, word in enumerate(words)}
    table = np.zeros((len(words), len(words)), np.int64)
    for text in texts:
        ids = [row[word] for word in text]
        for distance in range(1, window + 1):
            for left, right in zip(ids, ids[distance:], strict=False):
                table[left, right] += 1
                table[right, left] += 1
    return words, table
