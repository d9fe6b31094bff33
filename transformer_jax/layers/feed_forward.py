"""Position-wise feed-forward networks (Vaswani et al. 2017, section 3.3)."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Hidden
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.parameter_initialization import Layer, xavier_uniform
from transformer_jax.precision import FLOAT32, Precision, biased_einsum
from transformer_jax.registry.plugins import register

Activation = Callable[[Array], Array]


@jax.custom_vjp
def relu(inputs: Array) -> Array:
    """Return max(x, 0), and keep only the result for the gradient, as the next product does."""
    return jnp.maximum(inputs, 0.0)


def _relu_backward(result: Array, gradient: Array) -> tuple[Array]:
    return (jnp.where(result > 0.0, gradient, 0.0),)


relu.defvjp(lambda inputs: (relu(inputs),) * 2, _relu_backward)


def in_float32(activation: Activation) -> Activation:
    """Return ``activation`` computed in float32, with results in the type of its inputs."""
    return lambda inputs: activation(inputs.astype(jnp.float32)).astype(inputs.dtype)


class FeedForward(Layer):
    """activation(x W1 + b1) W2 + b2: equation 2, if the activation is ReLU."""

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


def _maker(activation: Activation) -> Callable[..., FeedForward]:
    return lambda settings, config, site, **options: FeedForward(config.d_ff, activation, **options)


register("feed_forward", "relu")(_maker(relu))
register("feed_forward", "gelu")(_maker(in_float32(jax.nn.gelu)))
register("feed_forward", "exact_gelu")(_maker(in_float32(partial(jax.nn.gelu, approximate=False))))
register("feed_forward", "silu")(_maker(in_float32(jax.nn.silu)))
