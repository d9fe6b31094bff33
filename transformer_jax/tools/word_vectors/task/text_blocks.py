"""Text as blocks for word2vec, whose random numbers are a pure function of (seed, update)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import EOS_ID, NUM_SPECIAL_IDS, PAD_ID
from transformer_jax.config import DataError
from transformer_jax.data.orders import epoch_order
from transformer_jax.data.token_store import DocumentStore
from transformer_jax.tools.word_vectors.task.word2vec import TextBlock
from transformer_jax.tools.word_vectors.task.word_vector_settings import SPANS_IN_UPDATE, BlockConfig, Word2vecConfig

# Token ids, and spans, that are read at once.
IDS_AT_ONCE = 1 << 22
SPANS_AT_ONCE = 4096
# Mikolov et al. 2013b, section 2.2.
NEGATIVE_POWER = 0.75
# Token ids in a span, at most.
LONGEST_SPAN = 512
# An update has room for the mean size of its spans and this number of standard deviations.
MARGIN_OF_DEVIATIONS = 4.0

KEEPING, WINDOWS, NEGATIVES = range(3)
"""Streams of random numbers of an update."""

RandomBits = Callable[[int], np.ndarray]


def random_bits(seed: int, update: int, stream: int) -> RandomBits:
    """Return a function of n that returns n uint64 of an independent stream, stable in NumPy."""
    key, counter = np.array([seed, update], np.uint64), np.array([0, 0, 0, stream], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw


def counts_of_words(store: DocumentStore, vocabulary_size: int, min_count: int) -> np.ndarray:
    """Return counts of ids in a store, int64 [V], 0 for special ids and words below ``min_count``.

    Reads a few million ids at a time. Raises DataError unless at least two words are left.
    """
    counts = np.zeros(vocabulary_size, np.int64)
    for start in range(0, store.num_tokens, IDS_AT_ONCE):
        counts += np.bincount(store.ids[start : start + IDS_AT_ONCE], minlength=vocabulary_size)
    kept = np.where(counts >= min_count, counts, 0)
    kept[:NUM_SPECIAL_IDS] = 0
    if (words := np.count_nonzero(kept)) < 2:
        frequent = np.sort(counts[NUM_SPECIAL_IDS:])[::-1]
        if np.count_nonzero(frequent) < 2:
            number = "one distinct word" if np.count_nonzero(frequent) else "no words"
            problem = f"the text has {number}, and word vectors need two"
            raise DataError(f"data.train: {problem}; give more text")
        problem = f"only {words} of {np.count_nonzero(frequent):,} words occur {min_count} times or more"
        raise DataError(f"tokenizer.min_count: {problem}; set it to {frequent[1]} or less, or give more text")
    return kept


def keep_probabilities(counts: np.ndarray, subsample: float) -> np.ndarray:
    """Return the probabilities that subsampling keeps words, float64 [V], 0 without a count.

    A word of frequency f is kept with (sqrt(f / t) + 1) t / f, at most 1, as in word2vec.c, a bit
    more than sqrt(t / f) (Mikolov et al. 2013b, equation 5). ``subsample`` is t. 0 keeps all words.
    """
    frequencies = counts / counts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = subsample / frequencies if subsample else np.ones_like(frequencies)
        probabilities = np.minimum(np.sqrt(ratio) + ratio, 1.0)
    return np.where(counts > 0, probabilities, 0.0)


class AliasTable(NamedTuple):
    """Samples words in constant time (Walker 1977) by thresholds between two words."""

    words: np.ndarray
    thresholds: np.ndarray
    others: np.ndarray

    def sample(self, random: np.ndarray) -> np.ndarray:
        """Return words for uint64 ``random`` numbers, int32 of the same shape."""
        high, low = random >> np.uint64(32), random & np.uint64(0xFFFFFFFF)
        index = (high * np.uint64(len(self.words))) >> np.uint64(32)
        return np.where(low < self.thresholds[index], self.words[index], self.others[index]).astype(np.int32)


def negative_table(counts: np.ndarray) -> AliasTable:
    """Return the table for words in proportion to their count to the power ``NEGATIVE_POWER``."""
    words = np.flatnonzero(counts)
    weights = counts[words].astype(np.float64) ** NEGATIVE_POWER
    scaled = weights / weights.sum() * len(words)
    thresholds, others = np.ones(len(words)), words.copy()
    small = [index for index, share in enumerate(scaled) if share < 1]
    large = [index for index, share in enumerate(scaled) if share >= 1]
    left = scaled.tolist()
    while small and large:
        less, more = small.pop(), large[-1]
        thresholds[less], others[less] = left[less], words[more]
        left[more] -= 1 - left[less]
        if left[more] < 1:
            small.append(large.pop())
    return AliasTable(words, np.minimum(thresholds * 2**32, 2**32).astype(np.uint64), others)


class TextBlocks:
    """The blocks of all updates. Epochs have all spans in different orders and subsamples.

    An update takes as many spans as fit into its rows after subsampling. One update in 30,000 (4
    standard deviations) loses its last words.
    """

    def __init__(
        self,
        store: DocumentStore,
        counts: np.ndarray,
        subsample: float,
        batching: BlockConfig,
        model: Word2vecConfig,
        seed: int,
    ) -> None:
        self._ids, self._num_ids, self._seed = store.ids, store.num_tokens, seed
        self._model, self._row_length = model, batching.row_length
        self._rows = batching.blocks_per_update * batching.rows
        keep = keep_probabilities(counts, subsample)
        keep[EOS_ID] = 1.0
        self._thresholds = np.ceil(keep * 2.0**32).astype(np.uint64)
        self._span = min(LONGEST_SPAN, max(self._rows * self._row_length // SPANS_IN_UPDATE, 1))
        self._num_spans = -(-self._num_ids // self._span)
        self._kept_share = float(keep @ counts / counts.sum())
        self._spans_per_update = self._fitting_spans(keep)
        self._negatives = negative_table(counts)

    @property
    def updates_per_epoch(self) -> int:
        return -(-self._num_spans // self._spans_per_update)

    def report(self) -> tuple[dict[str, object], str]:
        """Return updates per epoch and the share of words that are kept, as JSON and as text."""
        counts: dict[str, object] = {"updates_per_epoch": self.updates_per_epoch, "kept_share": self._kept_share}
        remark = f"{self._kept_share:.1%} of the words that have vectors stay after subsampling"
        return counts, f"batches: {self.updates_per_epoch:,} an epoch; {remark}"

    def block(self, update: int) -> TextBlock:
        """Return the blocks of an update, counted from 0, row after row."""
        stream = self._stream(update)
        length, window, rows = self._row_length, self._model.window, self._rows
        padded = np.full(rows * length + 2 * window, PAD_ID, np.int32)
        padded[window : window + len(stream)] = stream
        words = np.lib.stride_tricks.sliding_window_view(padded, length + 2 * window)[::length]
        words = np.ascontiguousarray(words)
        random = _uint32(random_bits(self._seed, update, WINDOWS), rows * length)
        reach = (((random * np.uint64(window)) >> np.uint64(32)).astype(np.int32) + 1).reshape(rows, length)
        shared = self._model.shared_negatives
        bits = random_bits(self._seed, update, NEGATIVES)(rows * shared)
        return TextBlock(words, reach, self._negatives.sample(bits).reshape(rows, shared))

    def _stream(self, update: int) -> np.ndarray:
        """Return the subsampled words of an update, int32, EOS between documents and spans."""
        epoch, index = divmod(update, self.updates_per_epoch)
        order = epoch_order(self._num_spans, self._seed, epoch)
        spans = order[index * self._spans_per_update : (index + 1) * self._spans_per_update]
        end, size = np.array([EOS_ID], self._ids.dtype), self._span
        ids = np.concatenate([part for span in spans for part in (self._ids[span * size : (span + 1) * size], end)])
        random = _uint32(random_bits(self._seed, update, KEEPING), len(ids))
        kept = ids[random < self._thresholds[ids]]
        # A document without words keeps no EOS either.
        is_needed = (kept != EOS_ID) | np.concatenate([[False], kept[:-1] != EOS_ID])
        return kept[is_needed][: self._rows * self._row_length]

    def _fitting_spans(self, keep: np.ndarray) -> int:
        """Return the number of spans in an update, by mean and variance of subsampled sizes."""
        size, step = self._span, SPANS_AT_ONCE * self._span
        pieces = (self._ids[start : start + step] for start in range(0, self._num_ids, step))
        sizes = np.concatenate([np.add.reduceat(keep[ids], np.arange(0, len(ids), size)) for ids in pieces])
        # A span is followed by an EOS, and subsampling adds variance.
        mean = sizes.mean() + 1
        deviation = np.sqrt(sizes.var() + (1 - sizes.mean() / self._span) * sizes.mean())
        spans = np.arange(1, self._num_spans + 1)
        fits = spans * mean + MARGIN_OF_DEVIATIONS * deviation * np.sqrt(spans) <= self._rows * self._row_length
        return max(int(np.count_nonzero(fits)), 1)


def _uint32(bits: RandomBits, number: int) -> np.ndarray:
    """Return ``number`` random uint64 below 2^32, two per number of ``bits``."""
    return bits(-(-number // 2)).view(np.uint32)[:number].astype(np.uint64)
