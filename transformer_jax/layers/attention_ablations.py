"""Multi-head attention with one part taken out, to measure what that part is for."""

from dataclasses import replace

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.masks import SentenceMask


class UnscaledAttention(MultiHeadAttention):
    """softmax(Q Kᵀ) V: without the 1 / sqrt(d_k) of equation 1 (Vaswani et al. 2017, section 3.2.1)."""

    def _project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        # Every backend divides by sqrt(d_k).
        return super()._project_queries(queries) * self.key_size**0.5


class AcausalAttention(MultiHeadAttention):
    """No causal mask (against section 3.2.3): teacher-forced, a position also sees what follows it.

    Decoding one token at a time is unchanged: nothing follows yet.
    """

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` [B, Q, D] to all of the sentence in ``memory`` [B, M, D]."""
        return super().__call__(queries, memory, replace(mask, is_causal=False), train=train)
