"""Why long translations may compete with short ones: the divisor of a hypothesis's log-probability."""

from transformer_jax.array_types import Array, Float, Int


def length_penalty_divisor(lengths: Int[Array, "..."], alpha: float | Float[Array, ""]) -> Float[Array, "..."]:
    """Returns ``((5 + length) / 6) ** alpha``, float32 (Wu et al. 2016, equation 14).

    ``lengths`` count the tokens of a hypothesis, its EOS included. It is 1 for length 1, and for ``alpha`` 0 always;
    it never falls as hypotheses grow, for ``alpha`` of at least 0, which is what lets search stop early without
    error.
    """
    return ((5.0 + lengths) / 6.0) ** alpha
