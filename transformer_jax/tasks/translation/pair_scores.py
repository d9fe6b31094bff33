"""Log-probabilities of given translations by a trained model (forced decoding)."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import Array, Float, PyTree
from transformer_jax.config import DecodingConfig
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.evaluation.token_scores import TokenScores
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.translation.pair_batches import encode_pairs
from transformer_jax.training.sharding import everywhere, put_rows, row_groups

# The logits of so many positions are in memory at once, or of one pair where that is longer.
BATCH_TOKENS = 1024


class PairScorer:
    """Scores given translations with one model; compiled programs are kept, a few shapes in all."""

    def __init__(self, model: Module, tokenizers: TokenizerPair, config: DecodingConfig, mesh: Mesh) -> None:
        self._tokenizers, self._most, self._mesh = tokenizers, config.max_source_tokens, mesh
        self._score = jax.jit(partial(_token_log_probs, model), out_shardings=everywhere(mesh))

    def score(self, params: PyTree, sources: Sequence[str], targets: Sequence[str]) -> list[TokenScores]:
        """Scores ``targets`` as translations of ``sources``, in their order.

        Raises DataError when the numbers of sentences differ or one is too long (``decoding.max_source_tokens``).
        """
        pairs = encode_pairs(self._tokenizers, sources, targets, self._most)
        found: dict[int, np.ndarray] = {}
        for chosen, batch in pairs.batches(BATCH_TOKENS, row_groups(self._mesh)):
            log_probs = jax.device_get(self._score(params, put_rows(batch, self._mesh)))
            found |= {pair: log_probs[row, : len(pairs.targets[pair])] for row, pair in enumerate(chosen)}
        pieces_of = self._tokenizers.target.pieces
        return [
            TokenScores([*pieces_of(ids[:-1]), "</s>"], found[pair].tolist()) for pair, ids in enumerate(pairs.targets)
        ]


def _token_log_probs(model: Module, params: PyTree, batch: Batch) -> Float[Array, "B T"]:
    memory = call(model, params, "encode", batch.source, train=False)
    logits = call(model, params, "decode", batch.target, memory, train=False).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, batch.target.ids[:, :, None], axis=2)[:, :, 0]
    return chosen - jax.nn.logsumexp(logits, axis=2)
