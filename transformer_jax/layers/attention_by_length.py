"""The backend of attention by the length of the sequence."""

from dataclasses import dataclass, field

from transformer_jax.array_types import Array
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import AttentionBackend, AttentionOptions, EinsumAttention


@dataclass(frozen=True)
class ByLength:
    """``short`` up to ``limit`` scores a head, beyond ``long``, by default blockwise attention.

    Blocks are faster from 512 positions on, also on a CPU.
    """

    short: AttentionBackend = field(default_factory=EinsumAttention)
    long: AttentionBackend | None = None
    limit: int = 256 * 256

    def __call__(self, q: Array, k: Array, v: Array, mask: SentenceMask, options: AttentionOptions) -> Array:
        if q.shape[2] * k.shape[2] <= self.limit:
            return self.short(q, k, v, mask, options)
        return (self.long or _blockwise())(q, k, v, mask, options)


def _blockwise() -> AttentionBackend:
    from transformer_jax.layers.blockwise_attention import BlockwiseAttention

    return BlockwiseAttention()
