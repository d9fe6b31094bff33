"""word2vec with negative sampling on blocks of text: the products of many pairs of words at once, as matrix products."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import Word2vecConfig
from transformer_jax.tools.word_vectors.task.row_updates import Lookup
from transformer_jax.tools.word_vectors.task.windows import pair_mask, window_means
from transformer_jax.training.losses import LossSums

WORDS, OUTPUTS = ("embedding", "table"), ("projection", "table")
"""The vectors of words, and those that predict: of words, or of the inner nodes of a Huffman tree."""


class TextBlock(NamedTuple):
    """Rows of T words with W more on each side: ``words`` [R, T + 2 W], EOS between documents, PAD where there is none.

    ``reach`` [R, T]: how many words to each side of a word belong to its window. ``negatives`` [R, K]: words drawn for the row.
    """

    words: AnyArray
    reach: AnyArray
    negatives: AnyArray


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
