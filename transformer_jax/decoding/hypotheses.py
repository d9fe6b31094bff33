"""What search returns."""

from typing import NamedTuple

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
