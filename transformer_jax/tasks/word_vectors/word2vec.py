"""word2vec on blocks of text: the products of many pairs of words at once, as matrix products."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, PAD_ID, AnyArray, Array, Bool, Float, Int, PyTree
from transformer_jax.config import Word2vecConfig
from transformer_jax.training.losses import LossSums
from transformer_jax.training.row_updates import Lookup

WORDS, OUTPUTS = ("embedding", "table"), ("projection", "table")
"""The vectors of words, and those that predict: of words, or of the inner nodes of a Huffman tree."""


class TextBlock(NamedTuple):
    """Rows of T words with W more on each side: ``words`` [R, T + 2 W], EOS between documents, PAD where there is none.

    ``reach`` [R, T]: how many words to each side of a word belong to its window. ``negatives`` [R, K]: words drawn for the row.
    """

    words: AnyArray
    reach: AnyArray
    negatives: AnyArray


class TreeBlock(NamedTuple):
    """The same for hierarchical softmax, with the paths to the words of each row.

    ``top`` [R, T, N]: the turns at the N heaviest nodes of the tree. ``nodes``, ``places`` and ``turns`` [R, E]: the other
    nodes on the paths of a row, the word of the row (0 to T - 1) that each belongs to, and the turn there. A turn is 1 to the
    left, -1 to the right, and 0 where there is none.
    """

    words: AnyArray
    reach: AnyArray
    top: AnyArray
    nodes: AnyArray
    places: AnyArray
    turns: AnyArray


def pair_mask(words: Int[AnyArray, "R J"], reach: Int[AnyArray, "R T"]) -> Bool[Array, "R T J"]:
    """Which of the words are context of which center; a window ends where its document ends."""
    length = reach.shape[1]
    margin = (words.shape[1] - length) // 2
    document = jnp.cumsum(words == EOS_ID, axis=1)
    is_word = (words != EOS_ID) & (words != PAD_ID)
    center = slice(margin, margin + length)
    distance = jnp.abs(jnp.arange(words.shape[1])[None] - margin - jnp.arange(length)[:, None])
    is_near = (distance > 0)[None] & (distance[None] <= reach[:, :, None])
    is_same = document[:, center, None] == document[:, None, :]
    return is_near & is_same & is_word[:, center, None] & is_word[:, None, :]


class SkipGramNegative:
    """Skip-gram with negative sampling (Mikolov et al. 2013b, equation 4), for all pairs of a row at once.

    Every center of a row meets every vector that predicts, of a context word or a negative, in one matrix product; weights say
    which of them count: 1 for a context word, and of K shared negatives each ``negatives`` / K times the number of pairs of the
    center. In expectation that is what negatives of their own give each pair. A negative that is the word itself counts, as in
    the paper; word2vec.c leaves it out.
    """

    def __init__(self, config: Word2vecConfig) -> None:
        self._negatives, self._margin = config.negatives, config.window

    def lookups(self, block: TextBlock) -> dict[str, Lookup]:
        """The rows that a block reads."""
        center = block.words[:, self._margin : -self._margin]
        outputs = jnp.concatenate([block.words, block.negatives], axis=1)
        return {"center": Lookup(WORDS, center), "output": Lookup(OUTPUTS, outputs)}

    def loss(self, rows: Mapping[str, Array], block: TextBlock) -> LossSums:
        """Sums over the pairs of a block."""
        is_pair = pair_mask(block.words, block.reach)
        pairs = jnp.sum(is_pair, axis=2, keepdims=True, dtype=jnp.float32)
        share = self._negatives / block.negatives.shape[1]
        repelled = jnp.broadcast_to(pairs * share, (*pairs.shape[:2], block.negatives.shape[1]))
        weights = jnp.concatenate([jnp.asarray(is_pair, jnp.float32), repelled], axis=2)
        scores = jnp.einsum("rtd,rjd->rtj", rows["center"], rows["output"])
        contexts = block.words.shape[1]
        sign = jnp.where(jnp.arange(scores.shape[2]) < contexts, 1.0, -1.0)
        return _binary_sums(scores, sign[None, None], weights, is_pair, scores[:, :, :contexts], jnp.sum(pairs))


class CbowNegative:
    """CBOW with negative sampling: the mean of the words in a window predicts its center."""

    def __init__(self, config: Word2vecConfig) -> None:
        self._negatives, self._margin = config.negatives, config.window

    def lookups(self, block: TextBlock) -> dict[str, Lookup]:
        """The rows that a block reads."""
        center = block.words[:, self._margin : -self._margin]
        return {
            "context": Lookup(WORDS, block.words),
            "center": Lookup(OUTPUTS, center),
            "negative": Lookup(OUTPUTS, block.negatives),
        }

    def loss(self, rows: Mapping[str, Array], block: TextBlock) -> LossSums:
        """Sums over the centers of a block."""
        is_pair = pair_mask(block.words, block.reach)
        mean, is_center = window_means(is_pair, rows["context"])
        positive = jnp.sum(mean * rows["center"], axis=2, keepdims=True)
        negative = jnp.einsum("rtd,rkd->rtk", mean, rows["negative"])
        share = self._negatives / block.negatives.shape[1]
        weight = jnp.asarray(is_center, jnp.float32)[:, :, None]
        attracted = _binary_sums(
            positive, jnp.ones((1, 1, 1)), weight, is_center[:, :, None], positive, jnp.sum(weight)
        )
        repelled = jnp.sum(weight * share * nll_of_sign(-negative))
        return attracted._replace(loss=attracted.loss + repelled, nll=attracted.nll + repelled)


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

    All words of a row meet all nodes on its paths in matrix products; weights say which of them count, and how often.
    """

    def __init__(self, config: Word2vecConfig) -> None:
        self._window = config.window

    def lookups(self, block: TreeBlock) -> dict[str, Lookup]:
        """The rows that a block reads."""
        # A window reaches (window + 1) / 2 words to each side, on average.
        return tree_lookups(block, self._window + 1.0)

    def loss(self, rows: Mapping[str, Array], block: TreeBlock) -> LossSums:
        """Sums over the pairs of a block."""
        is_pair = jnp.asarray(pair_mask(block.words, block.reach), jnp.float32)
        top_turns = jnp.asarray(block.top, jnp.float32)
        asked = jnp.einsum("rtj,rtn->rjn", is_pair, jnp.abs(top_turns))
        turned = jnp.einsum("rtj,rtn->rjn", is_pair, top_turns)
        top = jnp.einsum("rjd,nd->rjn", rows["context"], rows["top"])
        # Of the paths that lead through a node, (asked + turned) / 2 turn to the left: likely is sigmoid(score).
        loss = jnp.sum(asked * nll_of_sign(-top) - 0.5 * (asked + turned) * top)
        turns = jnp.asarray(block.turns, jnp.float32)[:, :, None]
        weights = jnp.take_along_axis(is_pair, block.places[:, :, None], axis=1) * jnp.abs(turns)
        scores = jnp.einsum("red,rjd->rej", rows["node"], rows["context"])
        loss += jnp.sum(weights * nll_of_sign(turns * scores))
        right = jnp.sum(weights * (turns * scores > 0)) + 0.5 * jnp.sum(asked + jnp.sign(top) * turned)
        pairs = jnp.sum(is_pair)
        return LossSums(loss, loss, right * pairs / jnp.maximum(jnp.sum(weights) + jnp.sum(asked), 1.0), pairs)


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
        turns = block.turns * jnp.take_along_axis(asked[..., 0], block.places, axis=1)
        top = jnp.einsum("rtd,nd->rtn", mean, rows["top"]) * top_turns
        scores = turns * jnp.sum(rows["node"] * jnp.take_along_axis(mean, block.places[:, :, None], axis=1), axis=2)
        loss = jnp.sum(jnp.abs(top_turns) * nll_of_sign(top)) + jnp.sum(jnp.abs(turns) * nll_of_sign(scores))
        right = jnp.sum(top > 0, dtype=jnp.float32) + jnp.sum(scores > 0, dtype=jnp.float32)
        centers = jnp.sum(asked)
        questions = jnp.sum(jnp.abs(top_turns)) + jnp.sum(jnp.abs(turns))
        return LossSums(loss, loss, right * centers / jnp.maximum(questions, 1.0), centers)


Word2vec = SkipGramNegative | CbowNegative | SkipGramTree | CbowTree

OBJECTIVES: dict[tuple[str, str], Callable[[Word2vecConfig], Word2vec]] = {
    ("skip_gram", "negative_sampling"): SkipGramNegative,
    ("cbow", "negative_sampling"): CbowNegative,
    ("skip_gram", "hierarchical_softmax"): SkipGramTree,
    ("cbow", "hierarchical_softmax"): CbowTree,
}
"""By ``model.kind`` and ``model.output``."""


def window_means(
    is_pair: Bool[Array, "R T J"], contexts: Float[Array, "R J D"]
) -> tuple[Float[Array, "R T D"], Bool[Array, "R T"]]:
    """The mean vector of each window, and which windows have a word.

    As in word2vec.c each context word gets the whole gradient of the mean, not its share: words in short windows and long ones
    move alike. (Irsoy et al. 2021 discuss the difference.)
    """
    weights = jnp.asarray(is_pair, jnp.float32)
    counts = jnp.sum(weights, axis=2)
    return _window_means(weights, counts, contexts), counts > 0


@jax.custom_vjp
def _window_means(weights: Array, counts: Array, contexts: Array) -> Array:
    return jnp.einsum("rtj,rjd->rtd", weights, contexts) / jnp.maximum(counts, 1.0)[..., None]


def _window_means_forward(weights: Array, counts: Array, contexts: Array) -> tuple[Array, Array]:
    return _window_means(weights, counts, contexts), weights


def _window_means_backward(weights: Array, cotangent: Array) -> tuple[None, None, Array]:
    return None, None, jnp.einsum("rtj,rtd->rjd", weights, cotangent)


_window_means.defvjp(_window_means_forward, _window_means_backward)


def init_tables(key: Array, words: int, width: int) -> PyTree:
    """Vectors of words uniform in +-1 / (2 width), those that predict zero, as word2vec.c has them."""
    table = jax.random.uniform(key, (words, width), minval=-0.5 / width, maxval=0.5 / width)
    return {"embedding": {"table": table}, "projection": {"table": jnp.zeros((words, width))}}


@jax.custom_vjp
def nll_of_sign(scores: Array) -> Array:
    """-log sigmoid(score), elementwise; what JAX derives of ``softplus`` takes three times as long on a CPU."""
    return jnp.maximum(-scores, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(scores)))


def _nll_of_sign_forward(scores: Array) -> tuple[Array, Array]:
    return nll_of_sign(scores), scores


def _nll_of_sign_backward(scores: Array, cotangent: Array) -> tuple[Array]:
    return (-cotangent * jax.nn.sigmoid(-scores),)


nll_of_sign.defvjp(_nll_of_sign_forward, _nll_of_sign_backward)


def _binary_sums(
    scores: Array, signs: Array, weights: Array, is_asked: Array, likely: Array, examples: Array
) -> LossSums:
    """Weighted sums of -log sigmoid(sign score); ``correct`` counts the examples asked for whose score has the right sign,
    per question of an example.
    """
    loss = jnp.sum(weights * nll_of_sign(signs * scores))
    questions = jnp.maximum(jnp.sum(is_asked, dtype=jnp.float32), 1.0)
    correct = jnp.sum(is_asked & (likely > 0), dtype=jnp.float32) * examples / questions
    return LossSums(loss, loss, correct, examples)
