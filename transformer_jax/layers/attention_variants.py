"""Multi-head attention that is not the paper's: that of public checkpoints and of an early re-implementation, and ablations."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import linen as nn

from transformer_jax.array_types import Array, Bool, Float
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.precision import add_bias


class BiasedAttention(MultiHeadAttention):
    """Multi-head attention with a bias on each of its four projections, which the equations of section 3.2.2 lack.

    Most public checkpoints have them: OPUS-MT, M2M-100, fairseq, GPT-2.
    """

    def setup(self) -> None:
        super().setup()
        zeros = nn.initializers.zeros
        self.query_bias = self.param("query_bias", zeros, (self.num_heads, self.key_size))
        self.key_bias = self.param("key_bias", zeros, (self.num_heads, self.key_size))
        self.value_bias = self.param("value_bias", zeros, (self.num_heads, self.value_size))
        self.output_bias = self.param("output_bias", zeros, (self.d_model,))

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        """Keys and values of ``memory``; they do not depend on the query."""
        keys, values = super().project_memory(memory)
        return _in_heads_biased(keys, self.key_bias), _in_heads_biased(values, self.value_bias)

    def _project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        return _in_heads_biased(super()._project_queries(queries), self.query_bias)

    def _merged(self, heads_BQHU: Float[Array, "B Q H U"], is_query: Bool[Array, "#B #Q"]) -> Float[Array, "B Q D"]:
        return add_bias(super()._merged(heads_BQHU, is_query), self.output_bias)


def _in_heads_biased(projected_BHLK: Float[Array, "B H L K"], bias_HK: Float[Array, "H K"]) -> Float[Array, "B H L K"]:
    return add_bias(projected_BHLK, bias_HK[:, None])


class RectifiedAttention(MultiHeadAttention):
    """Multi-head attention as in an early public re-implementation (Kyubyong/transformer, 2017), not as in the paper.

    Queries, keys and values pass a ReLU, the heads are put side by side without a projection, and a query that may attend
    nowhere gets zeros. ``num_heads`` times ``value_size`` must be ``d_model``. Departs from that code: no biases.
    """

    def _set_up_output(self) -> None:
        pass

    def _in_heads(
        self, inputs_BLD: Float[Array, "B L D"], kernel_DHK: Float[Array, "D H K"]
    ) -> Float[Array, "B H L K"]:
        return jax.nn.relu(super()._in_heads(inputs_BLD, kernel_DHK))

    def _merged(self, heads_BQHU: Float[Array, "B Q H U"], is_query: Bool[Array, "#B #Q"]) -> Float[Array, "B Q D"]:
        return jnp.where(is_query[:, :, None], heads_BQHU.reshape(*heads_BQHU.shape[:2], -1), 0.0)


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
