"""Position-wise feed-forward networks (Vaswani et al. 2017, section 3.3; gated variants: Shazeer 2020)."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Hidden
from transformer_jax.config.plugins import register
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.initialization import Layer, xavier_uniform
from transformer_jax.precision import FLOAT32, Precision, biased_einsum, einsum, rounding_barrier

Activation = Callable[[Array], Array]


@jax.custom_vjp
def relu(inputs: Array) -> Array:
    """max(x, 0); the backward pass keeps only the result, which the next product keeps anyway."""
    return jnp.maximum(inputs, 0.0)


def _relu_backward(result: Array, gradient: Array) -> tuple[Array]:
    return (rounding_barrier(jnp.where(result > 0.0, gradient, 0.0)),)


relu.defvjp(lambda inputs: (relu(inputs),) * 2, _relu_backward)


def in_float32(activation: Activation) -> Activation:
    """``activation`` computed in float32, its result in the type of its inputs."""
    return lambda inputs: activation(inputs.astype(jnp.float32)).astype(inputs.dtype)


class FeedForward(Layer):
    """activation(x W1 + b1) W2 + b2 (equation 2, where the activation is ReLU)."""

    d_ff: int
    activation: Activation = relu
    dropout: Rate = None
    precision: Precision = FLOAT32

    @nn.compact
    def __call__(self, inputs: Hidden, *, train: bool) -> Hidden:
        d_model = inputs.shape[-1]
        wide_kernel = self.param("wide_kernel", xavier_uniform(0, 1), (d_model, self.d_ff))
        wide_bias = self.param("wide_bias", nn.initializers.zeros, (self.d_ff,))
        narrow_kernel = self.param("narrow_kernel", xavier_uniform(0, 1), (self.d_ff, d_model))
        narrow_bias = self.param("narrow_bias", nn.initializers.zeros, (d_model,))
        wide = self.activation(biased_einsum("BLD,DF->BLF", inputs, wide_kernel, wide_bias, self.precision))
        wide = Dropout(self.dropout)(wide, train=train)
        return biased_einsum("BLF,FD->BLD", wide, narrow_kernel, narrow_bias, self.precision)


class GatedFeedForward(Layer):
    """(activation(x W) * x V) W2, without biases (Shazeer 2020, equation 6: GEGLU with GELU, SwiGLU with SiLU)."""

    d_ff: int
    activation: Activation = jax.nn.gelu
    dropout: Rate = None
    precision: Precision = FLOAT32

    @nn.compact
    def __call__(self, inputs: Hidden, *, train: bool) -> Hidden:
        d_model = inputs.shape[-1]
        gate_kernel = self.param("gate_kernel", xavier_uniform(0, 1), (d_model, self.d_ff))
        wide_kernel = self.param("wide_kernel", xavier_uniform(0, 1), (d_model, self.d_ff))
        narrow_kernel = self.param("narrow_kernel", xavier_uniform(0, 1), (self.d_ff, d_model))
        gate = self.activation(einsum("BLD,DF->BLF", inputs, gate_kernel, self.precision))
        wide = gate * einsum("BLD,DF->BLF", inputs, wide_kernel, self.precision)
        wide = Dropout(self.dropout)(wide, train=train)
        return einsum("BLF,FD->BLD", wide, narrow_kernel, self.precision)


def _maker(module: Callable[..., nn.Module], activation: Activation) -> Callable[..., nn.Module]:
    return lambda settings, config, site, **options: module(config.d_ff, activation, **options)


register("feed_forward", "relu")(_maker(FeedForward, relu))
register("feed_forward", "gelu")(_maker(FeedForward, in_float32(jax.nn.gelu)))
register("feed_forward", "exact_gelu")(_maker(FeedForward, in_float32(partial(jax.nn.gelu, approximate=False))))
register("feed_forward", "silu")(_maker(FeedForward, in_float32(jax.nn.silu)))
register("feed_forward", "gated_gelu")(_maker(GatedFeedForward, in_float32(jax.nn.gelu)))
register("feed_forward", "gated_silu")(_maker(GatedFeedForward, in_float32(jax.nn.silu)))
