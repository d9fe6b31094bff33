"""Multi-head attention that differs from the paper's: public checkpoints and ablations."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import linen as nn

from transformer_jax.array_types import Array, Float
from transformer_jax.layers.attention import KVCache, MultiHeadAttention, StepMask
from transformer_jax.layers.dropout import Dropout
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.precision import add_bias
from transformer_jax.registry.plugins import register


@register("attention", "biased")
class BiasedAttention(MultiHeadAttention):
    """A bias on all four projections, as in OPUS-MT, M2M-100, fairseq and GPT-2."""

    def setup(self) -> None:
        super().setup()
        zeros = nn.initializers.zeros
        self.query_bias = self.param("query_bias", zeros, (self.num_heads, self.key_size))
        self.key_bias = self.param("key_bias", zeros, (self.num_heads, self.key_size))
        self.value_bias = self.param("value_bias", zeros, (self.num_heads, self.value_size))
        self.output_bias = self.param("output_bias", zeros, (self.d_model,))

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        keys, values = super().project_memory(memory)
        return add_bias(keys, self.key_bias[:, None]), add_bias(values, self.value_bias[:, None])

    def project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        return add_bias(super().project_queries(queries), self.query_bias[:, None])

    def project_output(self, heads_BHQU: Float[Array, "B H Q U"]) -> Float[Array, "B Q D"]:
        return add_bias(super().project_output(heads_BHQU), self.output_bias)


@register("attention", "rectified")
class RectifiedAttention(MultiHeadAttention):
    """Multi-head attention of Kyubyong/transformer (2017), here without biases.

    Queries, keys and values pass a ReLU. There is no output projection, so H·U must be D. Padding
    gets zeros.
    """

    def setup(self) -> None:
        heads_in = xavier_uniform(0, (1, 2))
        self.query_kernel = self.param("query", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.key_kernel = self.param("key", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.value_kernel = self.param("value", heads_in, (self.d_model, self.num_heads, self.value_size))
        self.weight_dropout = Dropout(self.dropout)

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        is_token = jnp.asarray(mask.query_segments) != 0
        return jnp.where(is_token[:, :, None], super().__call__(queries, memory, mask, train=train), 0.0)

    def attend(self, queries: Float[Array, "B Q D"], cache: KVCache, mask: StepMask) -> Float[Array, "B Q D"]:
        return jnp.where(jnp.any(mask.visible, axis=-1)[:, :, None], super().attend(queries, cache, mask), 0.0)

    def project_memory(self, memory: Float[Array, "B M D"]) -> tuple[Float[Array, "B H M K"], Float[Array, "B H M U"]]:
        keys, values = super().project_memory(memory)
        return jax.nn.relu(keys), jax.nn.relu(values)

    def project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        return jax.nn.relu(super().project_queries(queries))

    def project_output(self, heads_BHQU: Float[Array, "B H Q U"]) -> Float[Array, "B Q D"]:
        heads_BQHU = jnp.swapaxes(heads_BHQU, 1, 2)
        return heads_BQHU.reshape(*heads_BQHU.shape[:2], -1)


@register("attention", "unscaled")
class UnscaledAttention(MultiHeadAttention):
    """softmax(Q Kᵀ) V, without the 1 / sqrt(d_k) of equation 1 (Vaswani et al. 2017)."""

    def project_queries(self, queries: Float[Array, "B Q D"]) -> Float[Array, "B H Q K"]:
        """Multiply queries by sqrt(d_k), by which every backend divides."""
        return super().project_queries(queries) * self.key_size**0.5


@register("attention", "acausal")
class AcausalAttention(MultiHeadAttention):
    """No causal mask (against section 3.2.3) except in decoding steps."""

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        """Attend from ``queries`` to the whole sentence in ``memory``."""
        return super().__call__(queries, memory, replace(mask, is_causal=False), train=train)
