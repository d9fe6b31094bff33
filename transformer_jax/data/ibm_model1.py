"""Lexical translation probabilities from sentence pairs (IBM model 1, Brown et al. 1993, section 4.1)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import PAD_ID
from transformer_jax.data.token_store import Side

# Pairs of positions counted at once, some 100 MB.
POSITIONS_AT_ONCE = 1 << 21


class LexicalTable(NamedTuple):
    """Tokens that occur in one sentence pair, int64 [N], in their order, and ``probabilities`` [N] of target given source.

    The source PAD is the empty word.
    """

    sources: np.ndarray
    targets: np.ndarray
    probabilities: np.ndarray

    def best(self, count: int, num_sources: int) -> np.ndarray:
        """The ``count`` most probable targets of each source, int32 [num_sources, count], best first, padded with PAD."""
        order = np.lexsort((self.targets, -self.probabilities, self.sources))
        sources, targets = self.sources[order], self.targets[order]
        ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
        is_best = ranks < count
        found = np.full((num_sources, count), PAD_ID, np.int32)
        found[sources[is_best], ranks[is_best]] = targets[is_best]
        return found


def lexical_table(source: Side, target: Side, pairs: np.ndarray, num_targets: int, iterations: int = 5) -> LexicalTable:
    """Probabilities after some iterations of expectation maximization over these ``pairs`` of a token store, EOS left out.

    ``num_targets`` is the size of the target vocabulary. The first iteration starts from equal probabilities.
    """
    found = np.zeros(0, np.int64)
    for keys, _ in _blocks(source, target, pairs, num_targets):
        found = np.union1d(found, keys)
    sources, targets = found // num_targets, found % num_targets
    probabilities = np.ones(len(found))
    for _ in range(iterations):
        counts = np.zeros(len(found))
        for keys, sizes in _blocks(source, target, pairs, num_targets):
            places = np.searchsorted(found, keys)
            of_keys = probabilities[places]
            totals = np.add.reduceat(of_keys, np.cumsum(sizes) - sizes)
            counts += np.bincount(places, of_keys / np.repeat(totals, sizes), len(found))
        probabilities = counts / np.bincount(sources, counts)[sources]
    return LexicalTable(sources, targets, probabilities)


def _blocks(source: Side, target: Side, pairs: np.ndarray, num_targets: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For one target token after another every token that its pair has as source, the empty word too.

    Each block: ``source * num_targets + target`` [N], and how many of these belong to each target token.
    """
    source_lengths, target_lengths = (side.offsets[pairs + 1] - side.offsets[pairs] for side in (source, target))
    positions = np.cumsum(source_lengths * (target_lengths - 1))
    for block in np.split(pairs, np.flatnonzero(np.diff(positions // POSITIONS_AT_ONCE)) + 1):
        (sources, source_lengths), (targets, target_lengths) = source.sentences(block), target.sentences(block)
        # Where EOS was, the empty word is.
        sources, targets = sources.astype(np.int64), targets.astype(np.int64)
        sources[np.cumsum(source_lengths) - 1] = PAD_ID
        is_word = np.ones(len(targets), bool)
        is_word[np.cumsum(target_lengths) - 1] = False
        own_pair = np.repeat(np.arange(len(block)), target_lengths)[is_word]
        sizes = source_lengths[own_pair].astype(np.int64)
        starts = (np.cumsum(source_lengths) - source_lengths)[own_pair] - (np.cumsum(sizes) - sizes)
        if len(sizes):
            places = np.repeat(starts, sizes) + np.arange(sizes.sum())
            yield sources[places] * num_targets + np.repeat(targets[is_word], sizes), sizes
