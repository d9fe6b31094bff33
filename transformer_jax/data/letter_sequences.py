"""Lines in another language than their side, by its own sequences of three letters (Cavnar and Trenkle 1994)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.data.corpus_statistics import LETTERS

# Sequences of three letters: bits of their hash; the fewest of a line that is judged; log-likelihood by which those of the
# other side explain it better, in all and each; deviations by which a line is less likely than those of its side.
HASH_BITS, FEWEST_SEQUENCES, OTHER_SIDE, OTHER_SIDE_EACH, UNLIKE = 16, 15, 15.0, 0.5, 8.0
USUAL_SEQUENCES, MOST_SEQUENCES = 40, 100


class Letters(NamedTuple):
    """Log-probabilities of the sequences of three letters of a side, by hash, and what is usual for the mean of a line."""

    scores: np.ndarray
    median: float
    deviation: float


def _sequences(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The index of the text and the hash of every sequence of three letters, a space around each word."""
    joined = "".join(f" {' '.join(LETTERS.findall(text.lower()))} \n" for text in texts)
    codes = np.frombuffer(joined.encode("utf-32-le", "replace"), np.uint32).astype(np.uint64)
    triples = (codes[:-2] << np.uint64(42)) ^ (codes[1:-1] << np.uint64(21)) ^ codes[2:]
    hashed = (triples * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - HASH_BITS)
    is_end = codes == ord("\n")
    inside = ~(is_end[:-2] | is_end[1:-1] | is_end[2:])
    return np.cumsum(is_end)[:-2][inside], hashed[inside].astype(np.int64)


def letters_of(texts: Sequence[str]) -> Letters:
    """The sequences of a sample of one side."""
    rows, hashed = _sequences(texts)
    counts = np.bincount(hashed, minlength=1 << HASH_BITS) + 0.5
    scores = np.log(counts / counts.sum())
    number = np.bincount(rows, minlength=len(texts))
    is_judged = number >= FEWEST_SEQUENCES
    if not is_judged.any():
        return Letters(scores, 0.0, np.inf)
    means = (np.bincount(rows, scores[hashed], len(texts)) / np.maximum(number, 1))[is_judged]
    median = float(np.median(means))
    return Letters(scores, median, max(1.48 * float(np.median(abs(means - median))), 0.01))


def strange_texts(texts: Sequence[str], own: Letters, other: Letters | None) -> Iterator[tuple[int, bool]]:
    """The indices of texts whose letters are not those of their side, and whether they are those of the other."""
    rows, hashed = _sequences(texts)
    number = np.bincount(rows, minlength=len(texts))
    of_other = np.zeros(len(texts), bool)
    if other is not None:
        gain = np.bincount(rows, (other.scores - own.scores)[hashed], len(texts))
        of_other = (gain > OTHER_SIDE) & (gain > OTHER_SIDE_EACH * number) & (number >= FEWEST_SEQUENCES)
    mean = np.bincount(rows, own.scores[hashed], len(texts)) / np.maximum(number, 1)
    # A short line deviates by chance.
    scale = np.sqrt(np.minimum(number, MOST_SEQUENCES) / USUAL_SEQUENCES) / own.deviation
    is_unlike = ((mean - own.median) * scale < -UNLIKE) & (number >= FEWEST_SEQUENCES)
    yield from ((int(index), bool(of_other[index])) for index in np.flatnonzero(of_other | is_unlike))
