"""word2vec with negative sampling (Mikolov et al. 2013a, 2013b) on blocks of text."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, PAD_ID, AnyArray, Array, Bool, Float, Int, PyTree
from transformer_jax.tools.word_vectors.task.row_updates import Lookup
from transformer_jax.tools.word_vectors.task.word_vector_settings import Word2vecConfig
from transformer_jax.training.losses import LossSums

WORDS = ("embedding", "table")
"""Path of the input vectors."""
OUTPUTS = ("projection", "table")
"""Path of the output vectors."""


class TextBlock(NamedTuple):
    """Rows of T center words, with W words of context before the first and after the last.

    ``words`` [R, T + 2 W] has EOS between documents, PAD beyond the text. ``reach`` [R, T] is the
    window size of a center, 1 to W. ``negatives`` [R, K] are random words for the row.
    """

    words: AnyArray
    reach: AnyArray
    negatives: AnyArray


class SkipGramNegative:
    """Skip-gram with negative sampling (Mikolov et al. 2013b, equation 4), a row at once.

    One matrix product scores every center of a row against the output vectors of all words and
    negatives of the row. The weight of a score is 1 for a context word and 0 for another word. For
    one of the K shared negatives it is the number of pairs of the center times ``negatives`` / K,
    in expectation the same as separate negatives for every pair. A negative that equals the context
    word counts, as in the paper. word2vec.c skips it.
    """

    def __init__(self, config: Word2vecConfig) -> None:
        self._negatives, self._margin = config.negatives, config.window

    def lookups(self, block: TextBlock) -> dict[str, Lookup]:
        center = block.words[:, self._margin : -self._margin]
        outputs = jnp.concatenate([block.words, block.negatives], axis=1)
        return {"center": Lookup(WORDS, center), "output": Lookup(OUTPUTS, outputs)}

    def loss(self, rows: Mapping[str, Array], block: TextBlock) -> LossSums:
        """Return sums over the pairs of a block."""
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
    """CBOW with negative sampling: the mean of the context words predicts the center."""

    def __init__(self, config: Word2vecConfig) -> None:
        self._negatives, self._margin = config.negatives, config.window

    def lookups(self, block: TextBlock) -> dict[str, Lookup]:
        center = block.words[:, self._margin : -self._margin]
        return {
            "context": Lookup(WORDS, block.words),
            "center": Lookup(OUTPUTS, center),
            "negative": Lookup(OUTPUTS, block.negatives),
        }

    def loss(self, rows: Mapping[str, Array], block: TextBlock) -> LossSums:
        """Return sums over the centers of a block."""
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
    """Initialize input vectors in +-1 / (2 width), output vectors to zero, as word2vec.c does."""
    table = jax.random.uniform(key, (words, width), minval=-0.5 / width, maxval=0.5 / width)
    return {"embedding": {"table": table}, "projection": {"table": jnp.zeros((words, width))}}


@jax.custom_vjp
def nll_of_sign(scores: Array) -> Array:
    """Return -log sigmoid(score). On a CPU its gradient takes a third of ``jax.nn.softplus``."""
    return jnp.maximum(-scores, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(scores)))


def _nll_of_sign_forward(scores: Array) -> tuple[Array, Array]:
    return nll_of_sign(scores), scores


def _nll_of_sign_backward(scores: Array, cotangent: Array) -> tuple[Array]:
    return (-cotangent * jax.nn.sigmoid(-scores),)


nll_of_sign.defvjp(_nll_of_sign_forward, _nll_of_sign_backward)


def _binary_sums(
    scores: Array, signs: Array, weights: Array, is_asked: Array, likely: Array, examples: Array
) -> LossSums:
    """Return weighted sums of -log sigmoid(sign score). ``correct`` counts ``likely`` above 0."""
    loss = jnp.sum(weights * nll_of_sign(signs * scores))
    questions = jnp.maximum(jnp.sum(is_asked, dtype=jnp.float32), 1.0)
    correct = jnp.sum(is_asked & (likely > 0), dtype=jnp.float32) * examples / questions
    return LossSums(loss, loss, correct, examples)


def pair_mask(words: Int[AnyArray, "R J"], reach: Int[AnyArray, "R T"]) -> Bool[Array, "R T J"]:
    """Return whether word j is at most ``reach`` from center t, in the same document."""
    length = reach.shape[1]
    margin = (words.shape[1] - length) // 2
    document = jnp.cumsum(words == EOS_ID, axis=1)
    is_word = (words != EOS_ID) & (words != PAD_ID)
    center = slice(margin, margin + length)
    distance = jnp.abs(jnp.arange(words.shape[1])[None] - margin - jnp.arange(length)[:, None])
    is_near = (distance > 0)[None] & (distance[None] <= reach[:, :, None])
    is_same = document[:, center, None] == document[:, None, :]
    return is_near & is_same & is_word[:, center, None] & is_word[:, None, :]


def window_means(
    is_pair: Bool[Array, "R T J"], contexts: Float[Array, "R J D"]
) -> tuple[Float[Array, "R T D"], Bool[Array, "R T"]]:
    """Return the mean vectors of windows, and whether windows have a word.

    As in word2vec.c a context word gets the gradient of the mean undivided. Irsoy et al. 2021
    discuss the difference.
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
