"""Letter trigrams of the two sides of a corpus, and the lines that are unlike their side (Cavnar and Trenkle 1994)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.data.corpus_statistics import LETTERS

# Bits of the hash of a trigram; the minimum in a line to classify it; the gain in log-likelihood, in total and for
# each, that assigns a line to the other side; the deviations from its side that make a line unlike it.
HASH_BITS, MIN_TRIGRAMS, OTHER_SIDE, OTHER_SIDE_EACH, UNLIKE = 16, 15, 15.0, 0.5, 8.0
USUAL_TRIGRAMS, MAX_TRIGRAMS = 40, 100


class Letters(NamedTuple):
    """Log-probabilities of the letter trigrams of a side by hash (Cavnar and Trenkle 1994).

    ``median`` and ``deviation`` of their mean over a line.
    """

    scores: np.ndarray
    median: float
    deviation: float


def _trigrams(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The index of the text and the hash of every trigram of letters and the spaces around words."""
    joined = "".join(f" {' '.join(LETTERS.findall(text.lower()))} \n" for text in texts)
    codes = np.frombuffer(joined.encode("utf-32-le", "replace"), np.uint32).astype(np.uint64)
    triples = (codes[:-2] << np.uint64(42)) ^ (codes[1:-1] << np.uint64(21)) ^ codes[2:]
    hashed = (triples * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - HASH_BITS)
    is_end = codes == ord("\n")
    inside = ~(is_end[:-2] | is_end[1:-1] | is_end[2:])
    return np.cumsum(is_end)[:-2][inside], hashed[inside].astype(np.int64)


def letters_of(texts: Sequence[str]) -> Letters:
    """The trigrams of a sample of one side."""
    rows, hashed = _trigrams(texts)
    counts = np.bincount(hashed, minlength=1 << HASH_BITS) + 0.5
    scores = np.log(counts / counts.sum())
    number = np.bincount(rows, minlength=len(texts))
    is_long = number >= MIN_TRIGRAMS
    if not is_long.any():
        return Letters(scores, 0.0, np.inf)
    means = (np.bincount(rows, scores[hashed], len(texts)) / np.maximum(number, 1))[is_long]
    median = float(np.median(means))
    return Letters(scores, median, max(1.48 * float(np.median(abs(means - median))), 0.01))


def strange_texts(texts: Sequence[str], own: Letters, other: Letters | None) -> Iterator[tuple[int, bool]]:
    """The indices of texts whose trigrams are unlike their side, and whether they are like the other side."""
    rows, hashed = _trigrams(texts)
    number = np.bincount(rows, minlength=len(texts))
    of_other = np.zeros(len(texts), bool)
    if other is not None:
        gain = np.bincount(rows, (other.scores - own.scores)[hashed], len(texts))
        of_other = (gain > OTHER_SIDE) & (gain > OTHER_SIDE_EACH * number) & (number >= MIN_TRIGRAMS)
    mean = np.bincount(rows, own.scores[hashed], len(texts)) / np.maximum(number, 1)
    # Short lines deviate by chance.
    scale = np.sqrt(np.minimum(number, MAX_TRIGRAMS) / USUAL_TRIGRAMS) / own.deviation
    is_unlike = ((mean - own.median) * scale < -UNLIKE) & (number >= MIN_TRIGRAMS)
    yield from ((int(index), bool(of_other[index])) for index in np.flatnonzero(of_other | is_unlike))
