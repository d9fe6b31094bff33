"""Gated feed-forward layers: SwiGLU, GEGLU and ReGLU (Shazeer 2020, equation 6)."""

from dataclasses import dataclass
from typing import Any

import jax

from transformer_jax.config.checks import setting
from transformer_jax.config.plugins import register
from transformer_jax.layers.feed_forward import Activation, GatedFeedForward, in_float32, relu
from transformer_jax.layers.site import Site


@dataclass(frozen=True)
class GatedSettings:
    """The width of a gated layer, which has three matrices instead of two."""

    match_parameters: bool = setting(
        False, "The width is 2/3 of model.d_ff, so that three matrices are as large as two (Shazeer 2020, section 2)."
    )
    multiple_of: int = setting(8, "match_parameters: the width is rounded to a multiple of this.")

    def width(self, d_ff: int) -> int:
        """The width beside layers of width ``d_ff``."""
        unit = self.multiple_of
        return max(round(2 * d_ff / 3 / unit), 1) * unit if self.match_parameters else d_ff


def gated(settings: GatedSettings, config: Any, activation: Activation, **options: Any) -> GatedFeedForward:
    return GatedFeedForward(settings.width(config.d_ff), in_float32(activation), **options)


@register("feed_forward", "swiglu", settings=GatedSettings)
def swiglu(settings: GatedSettings, config: Any, site: Site, **options: Any) -> GatedFeedForward:
    """(SiLU(x W) * x V) W2, without biases (Shazeer 2020)."""
    return gated(settings, config, jax.nn.silu, **options)


@register("feed_forward", "geglu", settings=GatedSettings)
def geglu(settings: GatedSettings, config: Any, site: Site, **options: Any) -> GatedFeedForward:
    """(GELU(x W) * x V) W2, without biases (Shazeer 2020)."""
    return gated(settings, config, jax.nn.gelu, **options)


@register("feed_forward", "reglu", settings=GatedSettings)
def reglu(settings: GatedSettings, config: Any, site: Site, **options: Any) -> GatedFeedForward:
    """(ReLU(x W) * x V) W2, without biases (Shazeer 2020)."""
    return gated(settings, config, relu, **options)
