"""What search returns, and its way back to lists of token ids."""

from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import Array, Float, Int


class Hypotheses(NamedTuple):
    """The ``N`` best hypotheses of every sentence, best first.

    Shapes: ``ids`` int32 ``[B, N, T]``, each ending with EOS and padded with PAD; ``scores`` float32 ``[B, N]``, the
    log-probability divided by the length penalty; ``log_probs`` float32 ``[B, N]``, natural logarithm; ``lengths``
    int32 ``[B, N]``, tokens with EOS. Where there are fewer than ``N`` different hypotheses (a sentence of at most 0
    tokens, a tiny vocabulary) the rest has length 0, only PAD, and -inf for both numbers.
    """

    ids: Int[Array, "B N T"]
    scores: Float[Array, "B N"]
    log_probs: Float[Array, "B N"]
    lengths: Int[Array, "B N"]


def hypothesis_ids(hypotheses: Hypotheses, sentence: int, rank: int = 0) -> list[int]:
    """Returns the token ids of one hypothesis without EOS and padding; ``[]`` where there is none.

    ``ids[sentence, rank] = [7, 8, 2, 0]`` of length 3 gives ``[7, 8]``. Fetch the hypotheses from the device first
    (``jax.device_get``) when many are read.
    """
    length = int(hypotheses.lengths[sentence, rank])
    return [int(token) for token in np.asarray(hypotheses.ids[sentence, rank])[: max(length - 1, 0)]]
