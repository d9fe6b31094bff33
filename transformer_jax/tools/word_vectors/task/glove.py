"""GloVe (Pennington et al. 2014): counts with bounded memory, blocks of pairs, the loss."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import EOS_ID, AnyArray, Array, PyTree
from transformer_jax.config import DataError
from transformer_jax.data.stores import open_or_build
from transformer_jax.data.token_store import DocumentStore
from transformer_jax.data.tokenization import BuildProgress
from transformer_jax.files.file_digests import changed_files, write_digests
from transformer_jax.tools.word_vectors.task.row_updates import Lookup
from transformer_jax.tools.word_vectors.task.text_blocks import random_bits
from transformer_jax.tools.word_vectors.task.word2vec import OUTPUTS, WORDS
from transformer_jax.tools.word_vectors.task.word_vector_settings import BlockConfig, GloveConfig
from transformer_jax.training.losses import LossSums

WORD_BIAS = ("embedding", "bias")
CONTEXT_BIAS = ("projection", "bias")

FORMAT_VERSION = 1
PAIRS_FILE = "pairs"
PAIR = np.dtype([("key", np.int64), ("count", np.float32)])
"""A pair of words as word * V + context, and the sum of 1 / distance."""
# Token ids read, and pairs merged, at once.
IDS_AT_ONCE = 1 << 18
MERGED_AT_ONCE = 1 << 18


class PairBlock(NamedTuple):
    """Counted pairs [R, P]. ``counts`` are sums of 1 / distance, 0 for padding."""

    words: AnyArray
    contexts: AnyArray
    counts: AnyArray


class Glove:
    """Weighted least squares f(X) (w v + b + c - log X)^2 / 2 (half of equation 8, as in GloVe)."""

    def __init__(self, config: GloveConfig) -> None:
        self._x_max, self._alpha = config.x_max, config.alpha

    def lookups(self, block: PairBlock) -> dict[str, Lookup]:
        return {
            "word": Lookup(WORDS, block.words),
            "context": Lookup(OUTPUTS, block.contexts),
            "word_bias": Lookup(WORD_BIAS, block.words),
            "context_bias": Lookup(CONTEXT_BIAS, block.contexts),
        }

    def loss(self, rows: Mapping[str, Array], block: PairBlock) -> LossSums:
        """Return sums over the pairs of a block. ``correct`` ones are within a factor of 2."""
        is_pair = block.counts > 0
        counts = jnp.where(is_pair, block.counts, 1.0)
        weights = jnp.where(is_pair, jnp.minimum((counts / self._x_max) ** self._alpha, 1.0), 0.0)
        scores = jnp.sum(rows["word"] * rows["context"], axis=-1)
        error = scores + rows["word_bias"][..., 0] + rows["context_bias"][..., 0] - jnp.log(counts)
        loss = 0.5 * jnp.sum(weights * error**2)
        correct = jnp.sum(is_pair & (jnp.abs(error) < jnp.log(2.0)), dtype=jnp.float32)
        return LossSums(loss, loss, correct, jnp.sum(is_pair, dtype=jnp.float32))


def init_glove(key: Array, words: int, width: int) -> PyTree:
    """Initialize tables and biases uniformly in +-1 / (2 (width + 1)), as the authors' program."""
    limit = 0.5 / (width + 1)

    def table(number: int, columns: int) -> Array:
        return jax.random.uniform(jax.random.fold_in(key, number), (words, columns), minval=-limit, maxval=limit)

    return {
        "embedding": {"table": table(0, width), "bias": table(1, 1)},
        "projection": {"table": table(2, width), "bias": table(3, 1)},
    }


LARGEST_PRODUCT = 1 << 62


class PairBlocks:
    """The blocks of all updates. Epochs have all pairs in different orders and end with padding.

    The order, i * m + offset modulo the number of pairs with a coprime m, needs no memory.
    """

    def __init__(self, pairs: np.ndarray, vocabulary: int, batching: BlockConfig, seed: int) -> None:
        self._pairs, self._vocabulary, self._seed = pairs, vocabulary, seed
        self._shape = batching.blocks_per_update * batching.rows, batching.row_length

    @property
    def updates_per_epoch(self) -> int:
        return -(-len(self._pairs) // math.prod(self._shape))

    def block(self, update: int) -> PairBlock:
        """Return the blocks of an update, counted from 0, row after row."""
        size, number = math.prod(self._shape), len(self._pairs)
        epoch, index = divmod(update, self.updates_per_epoch)
        multiplier, offset = self._order(epoch)
        indices = np.arange(index * size, min((index + 1) * size, number), dtype=np.int64)
        pairs = np.zeros(size, PAIR)
        pairs[: len(indices)] = self._pairs[(indices * multiplier + offset) % number]
        words, contexts = np.divmod(pairs["key"], self._vocabulary)
        leaves = words.astype(np.int32), contexts.astype(np.int32), pairs["count"].copy()
        return PairBlock(*(leaf.reshape(self._shape) for leaf in leaves))

    def report(self) -> tuple[dict[str, object], str]:
        """Return numbers of pairs and updates, as JSON and as text."""
        counts: dict[str, object] = {"pairs": len(self._pairs), "updates_per_epoch": self.updates_per_epoch}
        return counts, f"batches: {self.updates_per_epoch:,} an epoch of {len(self._pairs):,} counted pairs"

    def _order(self, epoch: int) -> tuple[int, int]:
        number = len(self._pairs)
        multiplier, offset = (int(bits % number) for bits in random_bits(self._seed, epoch, 0)(2))
        # Products stay below 64 bits.
        multiplier = max(multiplier % (LARGEST_PRODUCT // max(number, 1)), 1)
        while math.gcd(multiplier, number) > 1:
            multiplier += 1
        return multiplier, offset


def open_cooccurrences(
    store: DocumentStore, identity: dict[str, str], counts: np.ndarray, config: GloveConfig, cache: str
) -> np.ndarray:
    """Return the counted pairs of a text, from the cache if it was counted before."""
    key = json.dumps([FORMAT_VERSION, identity, config.window, int(np.count_nonzero(counts)), int(counts.sum())])
    name = hashlib.sha256(key.encode()).hexdigest()[:32]

    def write(folder: Path) -> None:
        count_cooccurrences(store, counts, config.window, config.memory_pairs, folder)
        write_digests(folder)

    file = open_or_build(cache, f"cooccurrences/{name}", _whole_pairs, write)
    if not file.stat().st_size:
        raise DataError("data: no two words are near each other; give more text")
    return np.memmap(file, PAIR, "r")


def _whole_pairs(folder: Path) -> Path:
    """Return the file of pairs. Raises FileNotFoundError or, if it is damaged, ValueError."""
    file = folder / PAIRS_FILE
    if not file.is_file():
        raise FileNotFoundError(file)
    if changed := changed_files(folder):
        raise ValueError(f"{folder}: {', '.join(changed)} changed since written")
    return file


def count_cooccurrences(
    store: DocumentStore, counts: np.ndarray, window: int, memory_pairs: int, directory: Path
) -> None:
    """Write pairs of words at most ``window`` apart, in both orders, sorted by word and context.

    A pair in a document has weight 1 / distance (section 4.2 of Pennington et al. 2014). Words
    without a count do not add to the distance. When about ``memory_pairs`` pairs are in memory,
    they are sorted, summed and written to ``directory``, as runs that are merged at the end. Counts
    are float32, summed in float64.
    """
    runs: list[Path] = []
    held: list[np.ndarray] = []
    size = 0
    for pairs in _pairs_of_text(store, counts, window):
        held.append(pairs)
        size += len(pairs)
        if size >= memory_pairs:
            held = [_summed(np.concatenate(held))]
            size = len(held[0])
            # If most pairs are distinct, summing frees little memory.
            if size >= memory_pairs // 2:
                runs.append(directory / f"run-{len(runs)}")
                held.pop().tofile(runs[-1])
                size = 0
    if held:
        runs.append(directory / f"run-{len(runs)}")
        _summed(np.concatenate(held)).tofile(runs[-1])
    with open(directory / PAIRS_FILE, "wb") as file:
        for pairs in _merged([np.memmap(run, PAIR, "r") for run in runs if run.stat().st_size]):
            pairs.tofile(file)
    for run in runs:
        run.unlink()


def _pairs_of_text(store: DocumentStore, counts: np.ndarray, window: int) -> Iterator[np.ndarray]:
    """Yield the pairs of pieces of the text, not summed. Pieces overlap by a window."""
    is_word = counts > 0
    is_word[EOS_ID] = True
    vocabulary = len(counts)
    before = np.zeros(0, np.int64)
    progress = BuildProgress("pairs of words", store.num_tokens, unit="tokens", doing="counting")
    for start in range(0, store.num_tokens, IDS_AT_ONCE):
        ids = np.asarray(store.ids[start : start + IDS_AT_ONCE], np.int64)
        text = np.concatenate([before, ids[is_word[ids]]])
        document = np.cumsum(text == EOS_ID)
        for distance in range(1, window + 1):
            first, second = text[:-distance], text[distance:]
            counted = (document[:-distance] == document[distance:]) & (first != EOS_ID)
            # Pairs within the previous piece are already counted.
            counted[: max(len(before) - distance, 0)] = False
            left, right = first[counted], second[counted]
            pairs = np.empty(2 * len(left), PAIR)
            pairs["key"] = np.concatenate([left * vocabulary + right, right * vocabulary + left])
            pairs["count"] = 1 / distance
            yield pairs
        before = text[-window:]
        progress.advance(len(ids))


def _summed(pairs: np.ndarray) -> np.ndarray:
    """Return the pairs sorted by key, with counts of equal keys summed."""
    order = np.argsort(pairs["key"], kind="stable")
    keys = pairs["key"][order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    summed = np.empty(len(starts), PAIR)
    summed["key"] = keys[starts]
    summed["count"] = np.add.reduceat(pairs["count"][order].astype(np.float64), starts)
    return summed


def _merged(runs: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Merge sorted runs into sorted pieces, up to the smallest last key of the runs' next parts."""
    while runs := [run for run in runs if len(run)]:
        share = max(MERGED_AT_ONCE // len(runs), 1)
        limit = min(int(run["key"][:share][-1]) for run in runs)
        taken = [int(np.searchsorted(run["key"][:share], limit, side="right")) for run in runs]
        yield _summed(np.concatenate([run[:count] for run, count in zip(runs, taken, strict=True)]))
        runs = [run[count:] for run, count in zip(runs, taken, strict=True)]
