"""Four parts of a layer: a norm, a residual connection, a feed-forward network, initialization.

transformer-jax train --plugin=examples/layer_parts.py --config=quickstart \
    --config.model.norm=scale_norm --config.model.normalization=layer_scale \
    --config.model.feed_forward=bilinear --config.model.initialization=small \
    --workdir=runs/layer_parts
"""

import math
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp

import transformer_jax
from transformer_jax.config import setting
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.layers.residual import PreNormResidual, residual_sum
from transformer_jax.precision import Precision, einsum


class ScaleNorm(nn.Module):
    """g x / |x|, with one learned gain g (Nguyen and Salazar 2019, equation 6)."""

    initial: float
    precision: Precision

    @nn.compact
    def __call__(self, x):
        gain = self.param("gain", nn.initializers.constant(self.initial), ())
        wide = x.astype(jnp.float32)
        squares = jnp.sum(wide**2, axis=-1, keepdims=True)
        return (gain * wide / jnp.sqrt(squares + 1e-6)).astype(self.precision.output)


@transformer_jax.register("norm", "scale_norm")
def scale_norm(settings, config, site, *, precision):
    return ScaleNorm(math.sqrt(config.d_model), precision)


@dataclass(frozen=True)
class LayerScaleSettings:
    initial: float = setting(0.1, "Initial scale of the output of a sublayer.")


@transformer_jax.register("residual", "layer_scale", settings=LayerScaleSettings)
class LayerScale(PreNormResidual):
    """x + s Dropout(Sublayer(Norm(x))), a learned scale of each dimension (Touvron et al. 2021)."""

    width: int = 0
    initial: float = 1.0

    @classmethod
    def of(cls, settings, config, site, **options):
        return cls(width=config.d_model, initial=settings.initial, **options)

    def setup(self):
        super().setup()
        self.scale = self.param("scale", nn.initializers.constant(self.initial), (self.width,))

    def after(self, x, y, *, train):
        return residual_sum(x, y * self.scale[None, None], self.sublayer_dropout, train=train)


class Bilinear(nn.Module):
    """(x W * x V) W2 (Shazeer 2020, equation 6)."""

    width: int
    dropout: Rate
    precision: Precision

    @nn.compact
    def __call__(self, x, *, train):
        d_model = x.shape[-1]
        gate = self.param("gate_kernel", xavier_uniform(0, 1), (d_model, self.width))
        wide = self.param("wide_kernel", xavier_uniform(0, 1), (d_model, self.width))
        narrow = self.param("narrow_kernel", xavier_uniform(0, 1), (self.width, d_model))
        product = einsum("BLD,DF->BLF", x, gate, self.precision) * einsum("BLD,DF->BLF", x, wide, self.precision)
        product = Dropout(self.dropout)(product, train=train)
        return einsum("BLF,FD->BLD", product, narrow, self.precision)


@transformer_jax.register("feed_forward", "bilinear")
def bilinear(settings, config, site, *, dropout, precision):
    return Bilinear(config.d_ff, dropout, precision)


@transformer_jax.register("initialization", "small")
def small(settings, config, site, path):
    """Halve the kernels of feed-forward networks."""
    return 0.5 if site.kind == "feed_forward" and path.endswith("_kernel") else 1.0
