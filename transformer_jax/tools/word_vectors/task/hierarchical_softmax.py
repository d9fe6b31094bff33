"""word2vec with hierarchical softmax (Morin and Bengio 2005) over a Huffman tree, on blocks of text."""

import heapq
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transformer_jax.array_types import AnyArray, Array, Bool, Float
from transformer_jax.tools.word_vectors.task.row_updates import Lookup
from transformer_jax.tools.word_vectors.task.settings import Word2vecConfig
from transformer_jax.tools.word_vectors.task.word2vec import (
    OUTPUTS,
    WORDS,
    nll_of_sign,
    pair_mask,
    window_limits,
    window_means,
)
from transformer_jax.training.losses import LossSums

LEFT, RIGHT = 1, -1
TOP_NODES = 32
PIECE = 32
"""Nodes per piece: shorter pieces compute fewer unused scores, longer ones give faster matrix products."""
DEVIATIONS = 3.0
MOST_STEPS = 256
"""Maximum number of steps of a tree node that add up in a block, whose gradients are all computed at its start."""


class HuffmanTree(NamedTuple):
    """The path from the root to each word (Mikolov et al. 2013b, section 2.1); L is the length of the longest path.

    ``nodes`` int32 [V, L]: inner nodes, numbered from the root (0) by descending weight. ``turns`` int8 [V, L]: 1 for left, -1
    for right, 0 after the end of the path. Words without a count have empty paths.
    """

    nodes: np.ndarray
    turns: np.ndarray


def huffman_tree(counts: np.ndarray) -> HuffmanTree:
    """The tree with the lowest mean path length for counts [V]; among equal weights the earlier is joined first."""
    words = np.flatnonzero(counts)
    size = len(words)
    heap = [(int(weight), leaf) for leaf, weight in enumerate(counts[words])]
    heapq.heapify(heap)
    parent, turn = [0] * (2 * size - 1), [0] * (2 * size - 1)
    for joined in range(size, 2 * size - 1):
        (light, left), (heavy, right) = heapq.heappop(heap), heapq.heappop(heap)
        parent[left] = parent[right] = joined
        turn[left], turn[right] = LEFT, RIGHT
        heapq.heappush(heap, (light + heavy, joined))
    root = 2 * size - 2
    # Parents have higher numbers than children, so one pass from the root finds all paths.
    paths: list[list[tuple[int, int]]] = [[] for _ in range(2 * size - 1)]
    for node in range(root - 1, -1, -1):
        paths[node] = [*paths[parent[node]], (root - parent[node], turn[node])]
    longest = max(len(paths[leaf]) for leaf in range(size))
    nodes = np.zeros((len(counts), longest), np.int32)
    turns = np.zeros((len(counts), longest), np.int8)
    for word, path in zip(words, paths, strict=False):
        for depth, (node, direction) in enumerate(path):
            nodes[word, depth], turns[word, depth] = node, direction
    return HuffmanTree(nodes, turns)


class TreeBlock(NamedTuple):
    """A TextBlock with the paths to the words of each row instead of negatives; a turn is 1, -1, or 0 for none.

    ``top`` [R, T, N]: turns at the N heaviest nodes. The other nodes on the paths of a row, in the order of words, are in C
    pieces of E nodes: ``nodes``, ``positions`` and ``turns`` [R, C, E] are the node, the position (0 to T - 1) of the word at
    the end of its path, and the turn. ``spans`` [R, C, S]: the consecutive positions that a piece covers.
    """

    words: AnyArray
    reach: AnyArray
    top: AnyArray
    nodes: AnyArray
    positions: AnyArray
    turns: AnyArray
    spans: AnyArray


class RowPaths:
    """Paths of rows of ``length`` words as arrays of one shape: the ``top`` heaviest nodes, and the other nodes in pieces.

    ``counts`` [V]: counts of the words in the rows. Capacities are 3 standard deviations above the mean: one row in 700 loses
    its last nodes, and one piece in 700 the nodes of its last words.
    """

    def __init__(self, tree: HuffmanTree, counts: np.ndarray, length: int, top: int, piece: int = PIECE) -> None:
        is_top = (tree.nodes < top) & (tree.turns != 0)
        self._top = np.zeros((len(counts), top), np.int8)
        words, depths = np.nonzero(is_top)
        self._top[words, tree.nodes[words, depths]] = tree.turns[words, depths]
        is_below = (tree.nodes >= top) & (tree.turns != 0)
        self._nodes, self._turns = tree.nodes[is_below], tree.turns[is_below]
        self._lengths = np.count_nonzero(is_below, axis=1).astype(np.int32)
        self._starts = np.cumsum(self._lengths, dtype=np.int32) - self._lengths
        share = counts / counts.sum()
        mean = float(share @ self._lengths)
        deviation = float(share @ (self._lengths - mean) ** 2) ** 0.5
        capacity = max(int(np.ceil(length * mean + DEVIATIONS * deviation * length**0.5)), 1)
        self._piece = min(piece, capacity)
        self._pieces = -(-capacity // self._piece)
        spans = np.arange(1, length)
        fits = spans * mean - DEVIATIONS * deviation * np.sqrt(spans) >= self._piece
        self._span = length - int(np.count_nonzero(fits))

    def of(self, words: np.ndarray) -> tuple[np.ndarray, ...]:
        """``top``, ``nodes``, ``positions``, ``turns`` and ``spans`` of a TreeBlock for words [R, T]."""
        rows, length = words.shape
        lengths = self._lengths[words].ravel()
        ends = np.cumsum(lengths, dtype=np.int32)
        word = np.repeat(np.arange(words.size, dtype=np.int32), lengths)
        offsets = self._starts[words.ravel()] - ends + lengths
        found = offsets[word] + np.arange(len(word), dtype=np.int32)
        values = self._nodes[found], word % np.int32(length), self._turns[found]
        filled = [np.zeros((rows, self._pieces * self._piece), each.dtype) for each in values]
        start = 0
        for row, end in enumerate(ends[length - 1 :: length].tolist()):
            size = min(end - start, self._pieces * self._piece)
            for target, each in zip(filled, values, strict=True):
                target[row, :size] = each[start : start + size]
            start = end
        nodes, positions, turns = (each.reshape(rows, self._pieces, self._piece) for each in filled)
        first = np.minimum(positions[:, :, :1], length - self._span)
        turns[positions >= first + self._span] = 0
        return self._top[words], nodes, positions, turns, first + np.arange(self._span, dtype=np.int32)


def tree_lookups(block: TreeBlock, examples_per_word: float) -> dict[str, Lookup]:
    """The rows of both tables that a block reads: its words, the heaviest nodes, and the other nodes on its paths.

    About 1 / (n + 1) of all paths contain node n, since nodes are numbered by weight; a scale limits their steps.
    """
    examples = block.reach.size * examples_per_word

    def scale(nodes: AnyArray) -> Array:
        return jnp.minimum(MOST_STEPS * (jnp.asarray(nodes, jnp.float32) + 1.0) / examples, 1.0)

    top = jnp.arange(block.top.shape[2])
    return {
        "context": Lookup(WORDS, block.words),
        "top": Lookup(OUTPUTS, top, scale(top)),
        "node": Lookup(OUTPUTS, block.nodes, scale(block.nodes)),
    }


class SkipGramTree:
    """Skip-gram with hierarchical softmax: each context word predicts the path to the center.

    Scores are computed between all words of a row and the heaviest nodes, and between the nodes of a piece and the words in and
    around its span. The weight of a score is the number of its pairs.
    """

    def __init__(self, config: Word2vecConfig) -> None:
        self._window = config.window

    def lookups(self, block: TreeBlock) -> dict[str, Lookup]:
        # On average a window has (window + 1) / 2 words on each side.
        return tree_lookups(block, self._window + 1.0)

    def loss(self, rows: Mapping[str, Array], block: TreeBlock) -> LossSums:
        """Sums over the pairs of a block."""
        is_pair = pair_mask(block.words, block.reach)
        counts, top_turns = jnp.asarray(is_pair, jnp.float32), jnp.asarray(block.top, jnp.float32)
        asked = jnp.einsum("rtj,rtn->rjn", counts, jnp.abs(top_turns))
        turned = jnp.einsum("rtj,rtn->rjn", counts, top_turns)
        top = jnp.einsum("rjd,nd->rjn", rows["context"], rows["top"])
        # Of the paths through a node, (asked + turned) / 2 turn left, with probability sigmoid(score).
        loss = jnp.sum(asked * nll_of_sign(-top) - 0.5 * (asked + turned) * top)
        size = block.spans.shape[2] + block.words.shape[1] - block.reach.shape[1]

        def around(row: AnyArray, start: AnyArray) -> Array:
            return lax.dynamic_slice_in_dim(row, start, size)

        contexts = jax.vmap(jax.vmap(around, (None, 0)))(rows["context"], block.spans[:, :, 0])
        turns = jnp.asarray(block.turns, jnp.float32)[..., None]
        weights = self._weights(block, is_pair, size)
        scores = turns * jnp.einsum("rced,rcjd->rcej", rows["node"], contexts)
        loss += jnp.sum(weights * nll_of_sign(scores))
        right = jnp.sum(weights * (scores > 0)) + 0.5 * jnp.sum(asked + jnp.sign(top) * turned)
        pairs = jnp.sum(counts)
        return LossSums(loss, loss, right * pairs / jnp.maximum(jnp.sum(weights) + jnp.sum(asked), 1.0), pairs)

    def _weights(self, block: TreeBlock, is_pair: Bool[Array, "R T J"], size: int) -> Float[Array, "R C E size"]:
        """1 if a word around a span is in the context of the word at the end of a node's path, else 0."""
        first, last = (
            jnp.take_along_axis(limit[:, None], block.positions, axis=2)[..., None] for limit in window_limits(is_pair)
        )
        context = (block.spans[:, :, :1] + jnp.arange(size)[None, None])[:, :, None]
        is_near = (context >= first) & (context <= last) & (context != block.positions[..., None] + self._window)
        return jnp.asarray(is_near & (block.turns[..., None] != 0), jnp.float32)


class CbowTree:
    """CBOW with hierarchical softmax: the mean of the context words predicts the path to the center."""

    def __init__(self, config: Word2vecConfig) -> None:
        del config

    def lookups(self, block: TreeBlock) -> dict[str, Lookup]:
        return tree_lookups(block, 1.0)

    def loss(self, rows: Mapping[str, Array], block: TreeBlock) -> LossSums:
        """Sums over the centers of a block."""
        mean, is_center = window_means(pair_mask(block.words, block.reach), rows["context"])
        asked = jnp.asarray(is_center, jnp.float32)[:, :, None]
        top_turns = block.top * asked
        top = jnp.einsum("rtd,nd->rtn", mean, rows["top"]) * top_turns
        positions = block.positions.reshape(len(mean), -1)
        turns = block.turns.reshape(positions.shape) * jnp.take_along_axis(asked[..., 0], positions, axis=1)
        means = jnp.take_along_axis(mean, positions[:, :, None], axis=1)
        scores = turns * jnp.sum(rows["node"].reshape(means.shape) * means, axis=2)
        loss = jnp.sum(jnp.abs(top_turns) * nll_of_sign(top)) + jnp.sum(jnp.abs(turns) * nll_of_sign(scores))
        right = jnp.sum(top > 0, dtype=jnp.float32) + jnp.sum(scores > 0, dtype=jnp.float32)
        centers = jnp.sum(asked)
        questions = jnp.sum(jnp.abs(top_turns)) + jnp.sum(jnp.abs(turns))
        return LossSums(loss, loss, right * centers / jnp.maximum(questions, 1.0), centers)
