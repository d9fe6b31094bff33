"""How often words are, and what follows from it: which are left out of the text, which are drawn as negatives."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import NUM_SPECIAL_IDS
from transformer_jax.config import DataError
from transformer_jax.data.token_store import DocumentStore

IDS_AT_ONCE = 1 << 22
NEGATIVE_POWER = 0.75


def count_ids(store: DocumentStore, vocabulary_size: int) -> np.ndarray:
    """How often each id is in a store; int64 [V]. Reads it once, a few million ids at a time."""
    counts = np.zeros(vocabulary_size, np.int64)
    for start in range(0, store.num_tokens, IDS_AT_ONCE):
        counts += np.bincount(store.ids[start : start + IDS_AT_ONCE], minlength=vocabulary_size)
    return counts


def counts_of_words(counts: np.ndarray, min_count: int) -> np.ndarray:
    """``counts`` with 0 for what gets no vector: special ids, and words that occur less than ``min_count`` times.

    Raises DataError unless at least two words are left: a single one has no other to be told from.
    """
    kept = np.where(counts >= min_count, counts, 0)
    kept[:NUM_SPECIAL_IDS] = 0
    words = int(np.count_nonzero(kept))
    if words == 0:
        most = int(counts[NUM_SPECIAL_IDS:].max(initial=0))
        raise DataError(
            f"tokenizer.min_count: no word occurs {min_count} times; the most frequent one does {most:,} times; lower it, or "
            "give more text"
        )
    if words == 1:
        raise DataError(
            "data: a single word is left, which has no other to be told from; lower tokenizer.min_count or give more text"
        )
    return kept


def keep_probabilities(counts: np.ndarray, subsample: float) -> np.ndarray:
    """With which probability a word stays in the text; float64 [V], 0 for what has no count.

    (sqrt(f / t) + 1) t / f for a word of frequency f, at most 1: the formula of word2vec.c, which is a little milder than
    sqrt(t / f) of Mikolov et al. 2013b, equation 5. ``subsample`` is t; 0, all stay.
    """
    frequencies = counts / counts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = subsample / frequencies if subsample else np.ones_like(frequencies)
        probabilities = np.minimum(np.sqrt(ratio) + ratio, 1.0)
    return np.where(counts > 0, probabilities, 0.0)


class AliasTable(NamedTuple):
    """A distribution that is drawn from in constant time (Walker 1977): place i, or above its threshold ``others[i]``."""

    places: np.ndarray
    thresholds: np.ndarray
    others: np.ndarray

    def draw(self, random: np.ndarray) -> np.ndarray:
        """One of ``places`` for each uint64 of ``random``; int32 of the same shape."""
        high, low = random >> np.uint64(32), random & np.uint64(0xFFFFFFFF)
        index = (high * np.uint64(len(self.places))) >> np.uint64(32)
        chosen = np.where(low < self.thresholds[index], self.places[index], self.others[index])
        return chosen.astype(np.int32)


def negative_table(counts: np.ndarray, power: float = NEGATIVE_POWER) -> AliasTable:
    """Words in proportion to their count to the power 0.75 (Mikolov et al. 2013b, section 2.2)."""
    places = np.flatnonzero(counts)
    weights = counts[places].astype(np.float64) ** power
    scaled = weights / weights.sum() * len(places)
    thresholds, others = np.ones(len(places)), places.copy()
    small = [index for index, share in enumerate(scaled) if share < 1]
    large = [index for index, share in enumerate(scaled) if share >= 1]
    left = scaled.tolist()
    while small and large:
        less, more = small.pop(), large[-1]
        thresholds[less], others[less] = left[less], places[more]
        left[more] -= 1 - left[less]
        if left[more] < 1:
            small.append(large.pop())
    return AliasTable(places, np.minimum(thresholds * 2**32, 2**32).astype(np.uint64), others)


RandomBits = Callable[[int], np.ndarray]


def random_bits(seed: int, update: int, stream: int) -> RandomBits:
    """So many uint64 of a generator whose output numpy guarantees; ``stream`` tells those of an update apart."""
    generator = np.random.Philox(
        key=np.array([seed, update], np.uint64), counter=np.array([0, 0, 0, stream], np.uint64)
    )
    return generator.random_raw
