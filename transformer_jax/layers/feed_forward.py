"""Position-wise feed-forward networks (Vaswani et al. 2017, section 3.3; gated variants: Shazeer 2020)."""

from collections.abc import Callable

import flax.linen as nn
import jax

from transformer_jax.array_types import Array, Hidden
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.initialization import xavier_uniform
from transformer_jax.mixed_precision import contract

Activation = Callable[[Array], Array]


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2 (equation 2, where the activation is ReLU)."""

    d_ff: int
    activation: Activation = jax.nn.relu
    dropout: Rate = None
    dtype: str = "float32"

    @nn.compact
    def __call__(self, inputs: Hidden, *, train: bool) -> Hidden:
        """[B, L, D] to [B, L, D]."""
        d_model = inputs.shape[-1]
        wide_kernel = self.param("wide_kernel", xavier_uniform(0, 1), (d_model, self.d_ff))
        wide_bias = self.param("wide_bias", nn.initializers.zeros, (self.d_ff,))
        narrow_kernel = self.param("narrow_kernel", xavier_uniform(0, 1), (self.d_ff, d_model))
        narrow_bias = self.param("narrow_bias", nn.initializers.zeros, (d_model,))
        wide = self.activation(contract("BLD,DF->BLF", inputs, wide_kernel, self.dtype) + wide_bias[None, None, :])
        wide = Dropout(self.dropout)(wide, train=train)
        return contract("BLF,FD->BLD", wide, narrow_kernel, self.dtype) + narrow_bias[None, None, :]


class GatedFeedForward(nn.Module):
    """(activation(x W) * x V) W2, without biases (Shazeer 2020, equation 6: GEGLU with GELU, SwiGLU with SiLU)."""

    d_ff: int
    activation: Activation = jax.nn.gelu
    dropout: Rate = None
    dtype: str = "float32"

    @nn.compact
    def __call__(self, inputs: Hidden, *, train: bool) -> Hidden:
        """[B, L, D] to [B, L, D]."""
        d_model = inputs.shape[-1]
        gate_kernel = self.param("gate_kernel", xavier_uniform(0, 1), (d_model, self.d_ff))
        wide_kernel = self.param("wide_kernel", xavier_uniform(0, 1), (d_model, self.d_ff))
        narrow_kernel = self.param("narrow_kernel", xavier_uniform(0, 1), (self.d_ff, d_model))
        gate = self.activation(contract("BLD,DF->BLF", inputs, gate_kernel, self.dtype))
        wide = gate * contract("BLD,DF->BLF", inputs, wide_kernel, self.dtype)
        wide = Dropout(self.dropout)(wide, train=train)
        return contract("BLF,FD->BLD", wide, narrow_kernel, self.dtype)
