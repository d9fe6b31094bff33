"""Text as blocks for word2vec: which words go into which update is a pure function of (seed, update)."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from transformer_jax.array_types import EOS_ID, PAD_ID
from transformer_jax.config import BlockConfig, Word2vecConfig
from transformer_jax.config.word_vectors import SPANS_IN_UPDATE
from transformer_jax.data.batch_plan import random_order
from transformer_jax.data.token_store import DocumentStore
from transformer_jax.tools.word_vectors.task.frequencies import keep_probabilities, negative_table, random_bits
from transformer_jax.tools.word_vectors.task.hierarchical_softmax import TreeBlock
from transformer_jax.tools.word_vectors.task.huffman import huffman_tree
from transformer_jax.tools.word_vectors.task.row_paths import RowPaths
from transformer_jax.tools.word_vectors.task.word2vec import TextBlock

LONGEST_SPAN = 512
MARGIN_OF_DEVIATIONS = 4.0

SPANS_AT_ONCE = 4096

TOP_NODES = 32

KEEPING, WINDOWS, NEGATIVES = range(3)
"""The streams of random numbers of an update."""


class TextBlocks:
    """The blocks of all updates. Every epoch has every span of the text once, in its own order, with its own subsample.

    An update takes so many spans that what is left of them after subsampling fits into its rows, but for one in 30,000 updates
    whose last words are left out (4 standard deviations).
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
        self._window, self._row_length = model.window, batching.row_length
        self._rows = batching.blocks_per_update * batching.rows
        keep = keep_probabilities(counts, subsample)
        keep[EOS_ID] = 1.0
        self._thresholds = np.ceil(keep * 2.0**32).astype(np.uint64)
        self._span = min(LONGEST_SPAN, max(self._rows * self._row_length // SPANS_IN_UPDATE, 1))
        self.num_spans = -(-self._num_ids // self._span)
        self.words_per_epoch = float(keep @ counts)
        self.spans_per_update = self._fitting_spans(keep)
        self._complete = _completion(counts, keep * counts, model, self._rows, self._row_length)

    @property
    def updates_per_epoch(self) -> int:
        """Updates in which every span is seen once."""
        return -(-self.num_spans // self.spans_per_update)

    def report(self) -> tuple[dict[str, object], str]:
        """Counts of words and updates: as JSON, and as a line."""
        kept = self.words_per_epoch / self._num_ids
        counts: dict[str, object] = {"updates_per_epoch": self.updates_per_epoch, "kept_share": kept}
        return counts, f"batches: {self.updates_per_epoch:,} an epoch; {kept:.1%} of the tokens stay after subsampling"

    def block(self, update: int) -> TextBlock | TreeBlock:
        """The blocks of an update, counted from 0, row after row."""
        stream = self._stream(update)
        length, window, rows = self._row_length, self._window, self._rows
        padded = np.full(rows * length + 2 * window, PAD_ID, np.int32)
        padded[window : window + len(stream)] = stream
        words = np.lib.stride_tricks.sliding_window_view(padded, length + 2 * window)[::length]
        drawn = _uint32(random_bits(self._seed, update, WINDOWS), rows * length)
        reach = ((drawn * np.uint64(window)) >> np.uint64(32)).astype(np.int32) + 1
        bits = random_bits(self._seed, update, NEGATIVES)
        return self._complete(np.ascontiguousarray(words), reach.reshape(rows, length), bits)

    def _stream(self, update: int) -> np.ndarray:
        """The words of an update that stay, EOS between documents and spans; int32."""
        epoch, index = divmod(update, self.updates_per_epoch)
        order = _order(self.num_spans, self._seed, epoch)
        spans = order[index * self.spans_per_update : (index + 1) * self.spans_per_update]
        ends_span = np.array([EOS_ID], self._ids.dtype)
        size = self._span
        parts = [part for span in spans for part in (self._ids[span * size : (span + 1) * size], ends_span)]
        ids = np.concatenate(parts)
        drawn = _uint32(random_bits(self._seed, update, KEEPING), len(ids))
        kept = ids[drawn < self._thresholds[ids]]
        # Of a document that is left without words nothing is left.
        is_needless = (kept == EOS_ID) & np.concatenate([[True], kept[:-1] == EOS_ID])
        return kept[~is_needless][: self._rows * self._row_length]

    def _fitting_spans(self, keep: np.ndarray) -> int:
        """As many spans as fit into the rows of an update, for the mean and the deviation of what is left of a span."""
        sizes = np.concatenate([self._kept_of_spans(keep, first) for first in range(0, self.num_spans, SPANS_AT_ONCE)])
        # A span is followed by an EOS; whether a word stays has a variance of its own.
        mean = sizes.mean() + 1
        deviation = np.sqrt(sizes.var() + (1 - sizes.mean() / self._span) * sizes.mean())
        spans = np.arange(1, self.num_spans + 1)
        fits = spans * mean + MARGIN_OF_DEVIATIONS * deviation * np.sqrt(spans) <= self._rows * self._row_length
        return max(int(np.count_nonzero(fits)), 1)

    def _kept_of_spans(self, keep: np.ndarray, first: int) -> np.ndarray:
        """How many ids are expected to stay of some spans."""
        ids = self._ids[first * self._span : (first + SPANS_AT_ONCE) * self._span]
        return np.add.reduceat(keep[ids], np.arange(0, len(ids), self._span))


Complete = Callable[[np.ndarray, np.ndarray, Callable[[int], np.ndarray]], TextBlock | TreeBlock]


def _completion(counts: np.ndarray, kept: np.ndarray, model: Word2vecConfig, rows: int, row_length: int) -> Complete:
    """What a block has besides words and windows: negatives, or the ways through the tree."""
    if model.output == "hierarchical_softmax":
        paths, window = RowPaths(huffman_tree(counts), kept, row_length, TOP_NODES), model.window

        def with_paths(words: np.ndarray, reach: np.ndarray, bits: Callable[[int], np.ndarray]) -> TreeBlock:
            del bits
            return TreeBlock(words, reach, *paths.of(words[:, window:-window]))

        return with_paths
    table, shared = negative_table(counts), model.shared_negatives

    def with_negatives(words: np.ndarray, reach: np.ndarray, bits: Callable[[int], np.ndarray]) -> TextBlock:
        return TextBlock(words, reach, table.draw(bits(rows * shared)).reshape(rows, shared))

    return with_negatives


def _uint32(bits: Callable[[int], np.ndarray], number: int) -> np.ndarray:
    """``number`` random uint64 below 2^32, two from each that is drawn."""
    return bits(-(-number // 2)).view(np.uint32)[:number].astype(np.uint64)


@lru_cache(maxsize=2)
def _order(number: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch. A run reads one epoch at a time, two at its border."""
    return random_order(number, seed, epoch, stream=0)
