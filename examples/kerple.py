"""Logarithmic position biases: a score falls with the logarithm of the distance, at learned rates.

transformer-jax train --plugin=examples/kerple.py --config=quickstart \
    --config.model.attention=kerple --config.model.positions=none \
    --config.parts.kerple.initial_rate=0.5 --workdir=runs/kerple
"""

from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

import transformer_jax
from transformer_jax.config import setting
from transformer_jax.layers.modified_attention import SelfAttentionChange
from transformer_jax.tools.conform.equations import distances, multi_head


@dataclass(frozen=True)
class KerpleSettings:
    initial_rate: float = setting(1.0, "Initial value of both rates.")


def reference(params, inputs, mask):
    """Return equation 4 in NumPy, with which conform compares the part."""
    factor, rate = np.log1p(np.exp(params["changes_kerple"]["rates"]))[:, :, None, None]
    return multi_head(
        params, inputs, mask, scores=lambda scores: scores - factor * np.log1p(rate * np.abs(distances(inputs)))
    )


@transformer_jax.register("attention", "kerple", settings=KerpleSettings, reference=reference)
class LogarithmicBiases(SelfAttentionChange):
    """q k / sqrt(K) - r1 log(1 + r2 |distance|) in self-attention (Chi et al. 2022, equation 4)."""

    def setup(self):
        rate = self.settings.initial_rate
        inverse_softplus = rate + jnp.log(-jnp.expm1(-rate))
        self.rates = self.param("rates", nn.initializers.constant(inverse_softplus), (2, self.num_heads))

    def score_mod(self):
        return Partial(with_bias, self.rates)


def with_bias(rates, scores, at):
    factor, rate = nn.softplus(rates)[:, None, :, None, None]
    return scores - factor * jnp.log1p(rate * jnp.abs(at.distance)[:, None])
