"""Counted pairs of words as blocks for GloVe: which pairs go into which update is a pure function of (seed, update)."""

import hashlib
import json
import math
from functools import partial
from pathlib import Path

import numpy as np

from transformer_jax.config import BlockConfig, DataError
from transformer_jax.data.cached_stores import open_or_build
from transformer_jax.data.token_store import DocumentStore
from transformer_jax.runtime.file_digests import changed_files
from transformer_jax.tools.word_vectors.task.cooccurrences import PAIR, PAIRS_FILE, count_cooccurrences
from transformer_jax.tools.word_vectors.task.frequencies import random_bits
from transformer_jax.tools.word_vectors.task.glove import PairBlock

FORMAT_VERSION = 1


class PairBlocks:
    """The blocks of all updates. Every epoch has every pair once, in its own order; its last update is completed with nothing.

    The order is that of multiples of a number that has no divisor in common with the number of pairs: it takes no memory.
    """

    def __init__(self, pairs: np.ndarray, vocabulary: int, batching: BlockConfig, seed: int) -> None:
        self._pairs, self._vocabulary, self._seed = pairs, vocabulary, seed
        self._shape = batching.blocks_per_update * batching.rows, batching.row_length

    @property
    def updates_per_epoch(self) -> int:
        """Updates in which every pair is seen once."""
        return -(-len(self._pairs) // math.prod(self._shape))

    def block(self, update: int) -> PairBlock:
        """The blocks of an update, counted from 0, row after row."""
        size, number = math.prod(self._shape), len(self._pairs)
        epoch, index = divmod(update, self.updates_per_epoch)
        multiplier, offset = self._order(epoch)
        places = np.arange(index * size, min((index + 1) * size, number), dtype=np.int64)
        # Products of 64 bits would overflow from 3 billion pairs on.
        found = self._pairs[(places * multiplier + offset) % number]
        keys, counts = np.zeros(size, np.int64), np.zeros(size, np.float32)
        keys[: len(found)], counts[: len(found)] = found["key"], found["count"]
        words, contexts = np.divmod(keys, self._vocabulary)
        leaves = words.astype(np.int32), contexts.astype(np.int32), counts
        return PairBlock(*(leaf.reshape(self._shape) for leaf in leaves))

    def report(self) -> tuple[dict[str, object], str]:
        """Counts of pairs and updates: as JSON, and as a line."""
        counts: dict[str, object] = {"pairs": len(self._pairs), "updates_per_epoch": self.updates_per_epoch}
        return counts, f"batches: {self.updates_per_epoch:,} an epoch of {len(self._pairs):,} counted pairs"

    def _order(self, epoch: int) -> tuple[int, int]:
        number = len(self._pairs)
        drawn, offset = (int(bits % number) for bits in random_bits(self._seed, epoch, 0)(2))
        multiplier = max(drawn, 1)
        while math.gcd(multiplier, number) > 1:
            multiplier += 1
        return multiplier, offset


def open_cooccurrences(
    store: DocumentStore, identity: dict[str, str], counts: np.ndarray, window: int, memory_pairs: int, cache: str
) -> np.ndarray:
    """The counted pairs of a text: from the cache if the same text was counted the same way before, else counted now.

    Raises DataError where no two words are near each other.
    """
    key = json.dumps([FORMAT_VERSION, identity, window, int(np.count_nonzero(counts)), int(counts.sum())])
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    file = open_or_build(
        cache, f"cooccurrences/{name}", _whole_pairs, partial(count_cooccurrences, store, counts, window, memory_pairs)
    )
    if not file.stat().st_size:
        raise DataError("data: no two words are near each other; give more text")
    return np.memmap(file, PAIR, "r")


def _whole_pairs(folder: Path) -> Path:
    """Raises FileNotFoundError or ValueError where they are missing or damaged."""
    file = folder / PAIRS_FILE
    if not file.is_file():
        raise FileNotFoundError(file)
    if changed := changed_files(folder):
        raise ValueError(f"{folder}: {', '.join(changed)} changed since written")
    return file
