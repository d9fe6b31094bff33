"""Gated feed-forward layers: SwiGLU, GEGLU and ReGLU (Shazeer 2020, equation 6)."""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax

from transformer_jax.array_types import Hidden
from transformer_jax.config.checks import setting
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.feed_forward import Activation, in_float32, relu
from transformer_jax.layers.parameter_initialization import Layer, xavier_uniform
from transformer_jax.layers.site import Site
from transformer_jax.precision import FLOAT32, Precision, einsum
from transformer_jax.registry.plugins import register


@dataclass(frozen=True)
class GatedSettings:
    match_parameters: bool = setting(False, "2/3 of model.d_ff, so that three matrices are as large as two.")
    multiple_of: int = setting(8, "match_parameters: the width is rounded to a multiple of this.")

    def width(self, d_ff: int) -> int:
        unit = self.multiple_of
        return max(round(2 * d_ff / 3 / unit), 1) * unit if self.match_parameters else d_ff


class GatedFeedForward(Layer):
    """(activation(x W) * x V) W2, without biases."""

    d_ff: int
    activation: Activation
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


@register("feed_forward", "swiglu", settings=GatedSettings)
def swiglu(settings: GatedSettings, config: Any, site: Site, **options: Any) -> GatedFeedForward:
    """(SiLU(x W) * x V) W2, without biases (Shazeer 2020)."""
    return GatedFeedForward(settings.width(config.d_ff), in_float32(jax.nn.silu), **options)


@register("feed_forward", "geglu", settings=GatedSettings)
def geglu(settings: GatedSettings, config: Any, site: Site, **options: Any) -> GatedFeedForward:
    """(GELU(x W) * x V) W2, without biases (Shazeer 2020)."""
    return GatedFeedForward(settings.width(config.d_ff), in_float32(jax.nn.gelu), **options)


@register("feed_forward", "reglu", settings=GatedSettings)
def reglu(settings: GatedSettings, config: Any, site: Site, **options: Any) -> GatedFeedForward:
    """(ReLU(x W) * x V) W2, without biases (Shazeer 2020)."""
    return GatedFeedForward(settings.width(config.d_ff), in_float32(relu), **options)
