"""Squared ReLU (So et al. 2021, Primer, section 4.1)."""

from typing import Any

import jax.numpy as jnp

from transformer_jax.layers.feed_forward import FeedForward, in_float32, relu
from transformer_jax.layers.site import Site
from transformer_jax.registry.plugins import register


@register("feed_forward", "relu_squared")
def relu_squared(settings: None, config: Any, site: Site, **options: Any) -> FeedForward:
    """ReLU(x W1 + b1)^2 W2 + b2 (So et al. 2021)."""
    return FeedForward(config.d_ff, in_float32(lambda inputs: jnp.square(relu(inputs))), **options)
