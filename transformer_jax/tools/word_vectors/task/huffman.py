"""The Huffman tree of a vocabulary: frequent words have short ways from the root (Mikolov et al. 2013b, section 2.1)."""

import heapq
from typing import NamedTuple

import numpy as np

LEFT, RIGHT = 1, -1


class HuffmanTree(NamedTuple):
    """The inner nodes on the way from the root to each word, and the turns there; rows of words without a count are empty.

    ``nodes`` int32 [V, L]: numbered from the root, 0, downwards by weight. ``turns`` int8 [V, L]: 1 to the left, -1 to the
    right, 0 behind the end of the way. L is the longest way.
    """

    nodes: np.ndarray
    turns: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """How many turns it is to each word; [V]."""
        return np.count_nonzero(self.turns, axis=1)


def huffman_tree(counts: np.ndarray) -> HuffmanTree:
    """The tree in which the mean length of the way to a word is the least; of equal weights the earlier joins first."""
    words = np.flatnonzero(counts)
    parent, turn = _joined(counts[words])
    size = len(words)
    root = 2 * size - 2
    # Parents have higher numbers than their children, so one pass from the root finds all ways.
    ways: list[list[tuple[int, int]]] = [[] for _ in range(2 * size - 1)]
    for node in range(root - 1, -1, -1):
        above = parent[node]
        ways[node] = [*ways[above], (root - above, turn[node])]
    longest = max(len(ways[leaf]) for leaf in range(size))
    nodes = np.zeros((len(counts), longest), np.int32)
    turns = np.zeros((len(counts), longest), np.int8)
    for leaf, word in enumerate(words):
        for depth, (node, direction) in enumerate(ways[leaf]):
            nodes[word, depth], turns[word, depth] = node, direction
    return HuffmanTree(nodes, turns)


def _joined(weights: np.ndarray) -> tuple[list[int], list[int]]:
    """Parent and turn of every node but the root: the two lightest are joined until one is left; leaves are 0 to n - 1."""
    size = len(weights)
    heap = [(int(weight), leaf) for leaf, weight in enumerate(weights)]
    heapq.heapify(heap)
    parent, turn = [0] * (2 * size - 1), [0] * (2 * size - 1)
    for joined in range(size, 2 * size - 1):
        (light, left), (heavy, right) = heapq.heappop(heap), heapq.heappop(heap)
        parent[left] = parent[right] = joined
        turn[left], turn[right] = LEFT, RIGHT
        heapq.heappush(heap, (light + heavy, joined))
    return parent, turn
