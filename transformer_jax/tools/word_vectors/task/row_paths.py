"""The paths to the words of rows, as arrays of one shape."""

import numpy as np

from transformer_jax.tools.word_vectors.task.huffman import HuffmanTree

PIECE = 32
"""Nodes of a piece: short ones meet few words in vain, long ones make fast products."""
DEVIATIONS = 3.0


class RowPaths:
    """The paths of rows of ``length`` words: turns at the ``top`` heaviest nodes, the other nodes in pieces.

    Of one row in 700 (3 standard deviations) the last nodes find no room, and of one piece in 700 those of its last words: they
    are left out. ``counts`` are those of the words in the rows.
    """

    def __init__(self, tree: HuffmanTree, counts: np.ndarray, length: int, top: int, piece: int = PIECE) -> None:
        words = len(counts)
        is_top = (tree.nodes < top) & (tree.turns != 0)
        self._top = np.zeros((words, top), np.int8)
        rows, depths = np.nonzero(is_top)
        self._top[rows, tree.nodes[rows, depths]] = tree.turns[rows, depths]
        is_below = (tree.nodes >= top) & (tree.turns != 0)
        self._nodes, self._turns = tree.nodes[is_below], tree.turns[is_below]
        self._lengths = np.count_nonzero(is_below, axis=1).astype(np.int32)
        self._starts = np.cumsum(self._lengths, dtype=np.int32) - self._lengths
        share = counts / counts.sum()
        mean = float(share @ self._lengths)
        deviation = float(share @ (self._lengths - mean) ** 2) ** 0.5
        room = max(int(np.ceil(length * mean + DEVIATIONS * deviation * length**0.5)), 1)
        self._piece = min(piece, room)
        self._pieces = -(-room // self._piece)
        spans = np.arange(1, length)
        fits = spans * mean - DEVIATIONS * deviation * np.sqrt(spans) >= self._piece
        self._span = length - int(np.count_nonzero(fits))

    def of(self, words: np.ndarray) -> tuple[np.ndarray, ...]:
        """``top``, ``nodes``, ``places``, ``turns`` and ``spans`` of a TreeBlock for words [R, T]."""
        rows, length = words.shape
        shape = rows, self._pieces, self._piece
        lengths = self._lengths[words]
        ends = np.cumsum(lengths.ravel(), dtype=np.int32)
        word = np.repeat(np.arange(words.size, dtype=np.int32), lengths.ravel())
        offsets = self._starts[words.ravel()] - ends + lengths.ravel()
        found = offsets[word] + np.arange(len(word), dtype=np.int32)
        all_nodes, all_turns, all_places = self._nodes[found], self._turns[found], word % np.int32(length)
        nodes, places, turns = (
            np.zeros((rows, self._pieces * self._piece), kind) for kind in (np.int32, np.int32, np.int8)
        )
        start = 0
        for row, end in enumerate(ends[length - 1 :: length].tolist()):
            part, size = slice(start, min(end, start + nodes.shape[1])), min(end - start, nodes.shape[1])
            nodes[row, :size], places[row, :size], turns[row, :size] = (
                all_nodes[part],
                all_places[part],
                all_turns[part],
            )
            start = end
        nodes, places, turns = nodes.reshape(shape), places.reshape(shape), turns.reshape(shape)
        first = np.minimum(places[:, :, :1], length - self._span)
        turns[places >= first + self._span] = 0
        return self._top[words], nodes, places, turns, first + np.arange(self._span, dtype=np.int32)
