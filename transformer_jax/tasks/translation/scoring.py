"""The log-probability that a trained model gives to given translations."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Float, PyTree
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.translation.pair_batches import encoded_pairs, pair_batches
from transformer_jax.tasks.translation.trained_run import TrainedRun
from transformer_jax.training.sharding import everywhere, put_rows, row_groups

# Logits of the whole vocabulary exist for so many target positions at once.
BATCH_TOKENS = 1024


class PairScore(NamedTuple):
    """Log-probability, in nats, of a target given its source: of each piece, EOS the last, and in sum."""

    log_probability: float
    pieces: list[str]
    piece_log_probabilities: list[float]

    @property
    def perplexity(self) -> float:
        """Of a piece: exp(-log-probability / number of pieces)."""
        return float(np.exp(-self.log_probability / len(self.pieces)))


def score_pairs(trained: TrainedRun, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
    """The score of every pair, in order, by a teacher-forced pass without dropout.

    Raises DataError when the numbers of sentences differ or one is too long.
    """
    sides = encoded_pairs(trained.tokenizers, sources, targets, trained.config.decoding.max_source_tokens)
    compiled = jax.jit(partial(token_log_probabilities, trained.model), out_shardings=everywhere(trained.mesh))
    results: dict[int, PairScore] = {}
    for pairs, batch in pair_batches(sides, BATCH_TOKENS, row_groups(trained.mesh)):
        found = jax.device_get(compiled(trained.params, put_rows(batch, trained.mesh)))
        for row, pair in enumerate(pairs):
            ids = sides[1][pair]
            each = found[row, : len(ids)].tolist()
            pieces = [*trained.tokenizers.target.pieces(ids[:-1]), "</s>"]
            results[pair] = PairScore(float(np.sum(found[row, : len(ids)], dtype=np.float64)), pieces, each)
    return [results[pair] for pair in range(len(sources))]


def token_log_probabilities(model: Module, params: PyTree, batch: Batch) -> Float[Array, "B T"]:
    """Log-probability of every target token given the source and the target tokens before it, float32."""
    memory = call(model, params, "encode", batch.source, train=False)
    logits = call(model, params, "decode", batch.target, memory, train=False)
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return jnp.take_along_axis(log_probs, jnp.asarray(batch.target.ids)[..., None], axis=-1)[..., 0]
