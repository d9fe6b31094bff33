"""GloVe on blocks of counted pairs of words (Pennington et al. 2014)."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import GloveConfig
from transformer_jax.tools.word_vectors.task.row_updates import Lookup
from transformer_jax.tools.word_vectors.task.word2vec import OUTPUTS, WORDS
from transformer_jax.training.losses import LossSums

WORD_BIAS, CONTEXT_BIAS = ("embedding", "bias"), ("projection", "bias")


class PairBlock(NamedTuple):
    """Counted pairs [R, P]: ``words``, ``contexts``, and ``counts``, the sum of 1 / distance; 0 where there is no pair."""

    words: AnyArray
    contexts: AnyArray
    counts: AnyArray


class Glove:
    """Weighted least squares of log counts (equation 8): f(X) (w v + b + c - log X)^2 / 2, as the authors' program has it."""

    def __init__(self, config: GloveConfig) -> None:
        self._x_max, self._alpha = config.x_max, config.alpha

    def lookups(self, block: PairBlock) -> dict[str, Lookup]:
        """The rows that a block reads."""
        return {
            "word": Lookup(WORDS, block.words),
            "context": Lookup(OUTPUTS, block.contexts),
            "word_bias": Lookup(WORD_BIAS, block.words),
            "context_bias": Lookup(CONTEXT_BIAS, block.contexts),
        }

    def loss(self, rows: Mapping[str, Array], block: PairBlock) -> LossSums:
        """Sums over the pairs of a block; ``correct`` counts pairs whose count is met within a factor of 2."""
        is_pair = block.counts > 0
        counts = jnp.where(is_pair, block.counts, 1.0)
        weights = jnp.where(is_pair, jnp.minimum((counts / self._x_max) ** self._alpha, 1.0), 0.0)
        scores = jnp.sum(rows["word"] * rows["context"], axis=-1)
        error = scores + rows["word_bias"][..., 0] + rows["context_bias"][..., 0] - jnp.log(counts)
        loss = 0.5 * jnp.sum(weights * error**2)
        correct = jnp.sum(is_pair & (jnp.abs(error) < jnp.log(2.0)), dtype=jnp.float32)
        return LossSums(loss, loss, correct, jnp.sum(is_pair, dtype=jnp.float32))


def init_glove(key: Array, words: int, width: int) -> PyTree:
    """Uniform in +-1 / (2 (width + 1)), biases too, as the authors' program has them."""
    limit = 0.5 / (width + 1)

    def table(number: int, columns: int) -> Array:
        return jax.random.uniform(jax.random.fold_in(key, number), (words, columns), minval=-limit, maxval=limit)

    return {
        "embedding": {"table": table(0, width), "bias": table(1, 1)},
        "projection": {"table": table(2, width), "bias": table(3, 1)},
    }
