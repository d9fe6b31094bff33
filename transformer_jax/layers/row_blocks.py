"""Attention of a block of rows at a time: scores that never leave a chip."""

from dataclasses import dataclass

import jax
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array
from transformer_jax.layers.attention_backends import EinsumAttention, on_each_device
from transformer_jax.layers.blockwise_attention import padded
from transformer_jax.layers.dropout import Drops
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.precision import Precision


@dataclass(frozen=True)
class RowBlockAttention:
    """The reference on so many rows at a time that they have at most ``scores`` scores; computed again in the backward pass.

    A TPU keeps the scores of a block in its vector memory, where a batch of them goes through its main memory several times.
    Weights that are dropped are drawn for the batch as a whole, so with dropout it is one block.
    """

    mesh: Mesh
    heads: P
    scores: int = 2**22

    def __call__(
        self, query: Array, key: Array, value: Array, mask: SentenceMask, *, drops: Drops | None, precision: Precision
    ) -> Array:
        """See ``AttentionBackend``."""
        if drops is not None:
            return EinsumAttention()(query, key, value, mask, drops=drops, precision=precision)

        def attend(operands: tuple[Array, ...]) -> Array:
            query, key, value, queries, keys = operands
            own = SentenceMask(queries, keys, mask.is_causal)
            return EinsumAttention()(query, key, value, own, drops=None, precision=precision)

        def attend_in_blocks(*operands: Array) -> Array:
            rows, num_heads, num_queries = query_shape = operands[0].shape[:3]
            most = max(self.scores // (num_heads * num_queries * operands[1].shape[2]), 1)
            if rows <= most:
                return attend(operands)
            blocks = -(-rows // most)
            size = -(-rows // blocks)
            split = tuple(padded(each, 0, size).reshape(-1, size, *each.shape[1:]) for each in operands)
            heads = lax.map(jax.checkpoint(attend), split)
            return heads.reshape(-1, *query_shape[1:], heads.shape[-1])[:rows]

        attend_everywhere = on_each_device(attend_in_blocks, self.mesh, self.heads)
        return attend_everywhere(query, key, value, mask.query_segments, mask.key_segments)
