"""word2vec with hierarchical softmax on blocks of text: words of a row meet the nodes on its paths in matrix products."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import AnyArray, Array, Bool, Float, Int
from transformer_jax.config import Word2vecConfig
from transformer_jax.tools.word_vectors.task.row_updates import Lookup
from transformer_jax.tools.word_vectors.task.windows import pair_mask, window_limits, window_means
from transformer_jax.tools.word_vectors.task.word2vec import OUTPUTS, WORDS, nll_of_sign
from transformer_jax.training.losses import LossSums


class TreeBlock(NamedTuple):
    """A TextBlock with the paths to the words of each row in place of negatives.

    ``top`` [R, T, N]: the turns at the N heaviest nodes of the tree. The other nodes on the paths of a row, word after word,
    come in C pieces of E: ``nodes``, ``places`` and ``turns`` [R, C, E] have the node, the word of the row (0 to T - 1) that it
    leads to, and the turn there. ``spans`` [R, C, S]: the words, one after another, that a piece is about. A turn is 1 to the
    left, -1 to the right, and 0 where there is none.
    """

    words: AnyArray
    reach: AnyArray
    top: AnyArray
    nodes: AnyArray
    places: AnyArray
    turns: AnyArray
    spans: AnyArray


MOST_STEPS = 256
"""Steps of a node of the tree that may add up in a block; the gradients of a block are all taken at its start."""


def tree_lookups(block: TreeBlock, examples_per_word: float) -> dict[str, Lookup]:
    """The rows of both tables that a block reads: its words, the heaviest nodes, and the other nodes on its paths.

    Of nodes numbered by weight about 1 / (n + 1) of all paths lead through node n. Their scale keeps the heavy ones from making
    all steps of a block at once.
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
    """Skip-gram with hierarchical softmax (Morin and Bengio 2005): each context word is asked for the path to the center.

    All words of a row meet the heaviest nodes, and the words in and around the span of a piece its nodes; weights say which of
    them count, and how often.
    """

    def __init__(self, config: Word2vecConfig) -> None:
        self._window = config.window

    def lookups(self, block: TreeBlock) -> dict[str, Lookup]:
        """The rows that a block reads."""
        # A window reaches (window + 1) / 2 words to each side, on average.
        return tree_lookups(block, self._window + 1.0)

    def loss(self, rows: Mapping[str, Array], block: TreeBlock) -> LossSums:
        """Sums over the pairs of a block."""
        is_pair = pair_mask(block.words, block.reach)
        counts, top_turns = jnp.asarray(is_pair, jnp.float32), jnp.asarray(block.top, jnp.float32)
        asked = jnp.einsum("rtj,rtn->rjn", counts, jnp.abs(top_turns))
        turned = jnp.einsum("rtj,rtn->rjn", counts, top_turns)
        top = jnp.einsum("rjd,nd->rjn", rows["context"], rows["top"])
        # Of the paths that lead through a node, (asked + turned) / 2 turn to the left: likely is sigmoid(score).
        loss = jnp.sum(asked * nll_of_sign(-top) - 0.5 * (asked + turned) * top)
        size = block.spans.shape[2] + block.words.shape[1] - block.reach.shape[1]
        contexts = slices(rows["context"], block.spans[:, :, 0], size)
        turns = jnp.asarray(block.turns, jnp.float32)[..., None]
        weights = self._weights(block, is_pair, size)
        scores = turns * jnp.einsum("rced,rcjd->rcej", rows["node"], contexts)
        loss += jnp.sum(weights * nll_of_sign(scores))
        right = jnp.sum(weights * (scores > 0)) + 0.5 * jnp.sum(asked + jnp.sign(top) * turned)
        pairs = jnp.sum(counts)
        return LossSums(loss, loss, right * pairs / jnp.maximum(jnp.sum(weights) + jnp.sum(asked), 1.0), pairs)

    def _weights(self, block: TreeBlock, is_pair: Bool[Array, "R T J"], size: int) -> Float[Array, "R C E size"]:
        """1 where a word of ``size`` around a span is context of the word that a node leads to."""
        first, last = (
            jnp.take_along_axis(limit[:, None], block.places, axis=2)[..., None] for limit in window_limits(is_pair)
        )
        places = (block.spans[:, :, :1] + jnp.arange(size)[None, None])[:, :, None]
        is_near = (places >= first) & (places <= last) & (places != block.places[..., None] + self._window)
        return jnp.asarray(is_near & (block.turns[..., None] != 0), jnp.float32)


class CbowTree:
    """CBOW with hierarchical softmax: the mean of the words in a window is asked for the path to its center."""

    def __init__(self, config: Word2vecConfig) -> None:
        del config

    def lookups(self, block: TreeBlock) -> dict[str, Lookup]:
        """The rows that a block reads."""
        return tree_lookups(block, 1.0)

    def loss(self, rows: Mapping[str, Array], block: TreeBlock) -> LossSums:
        """Sums over the centers of a block."""
        mean, is_center = window_means(pair_mask(block.words, block.reach), rows["context"])
        asked = jnp.asarray(is_center, jnp.float32)[:, :, None]
        top_turns = block.top * asked
        top = jnp.einsum("rtd,nd->rtn", mean, rows["top"]) * top_turns
        places = block.places.reshape(len(mean), -1)
        turns = block.turns.reshape(places.shape) * jnp.take_along_axis(asked[..., 0], places, axis=1)
        means = jnp.take_along_axis(mean, places[:, :, None], axis=1)
        scores = turns * jnp.sum(rows["node"].reshape(means.shape) * means, axis=2)
        loss = jnp.sum(jnp.abs(top_turns) * nll_of_sign(top)) + jnp.sum(jnp.abs(turns) * nll_of_sign(scores))
        right = jnp.sum(top > 0, dtype=jnp.float32) + jnp.sum(scores > 0, dtype=jnp.float32)
        centers = jnp.sum(asked)
        questions = jnp.sum(jnp.abs(top_turns)) + jnp.sum(jnp.abs(turns))
        return LossSums(loss, loss, right * centers / jnp.maximum(questions, 1.0), centers)


def slices(values: Float[Array, "R L D"], starts: Int[AnyArray, "R C"], size: int) -> Float[Array, "R C size D"]:
    """``size`` places of each row from each of its starts."""

    def of_row(row: Array, starts: AnyArray) -> Array:
        return jax.vmap(lambda start: lax.dynamic_slice_in_dim(row, start, size))(starts)

    return jax.vmap(of_row)(values, starts)
