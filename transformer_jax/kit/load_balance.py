"""Balance of the loads of experts (Fedus et al. 2022, Switch, section 2.2)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array
from transformer_jax.config.checks import require, setting
from transformer_jax.config.plugins import register
from transformer_jax.training.loss_terms import ForcedPass, LossTerm


@dataclass(frozen=True)
class LoadBalanceSettings:
    """The weight of the term."""

    weight: float = setting(1e-2, "Factor on the balance of a layer, which is 1 for equal loads.", program="traced")


@register("loss_term", "load_balance", settings=LoadBalanceSettings)
class LoadBalance(LossTerm):
    """Experts times the sum of share of tokens times mean probability, over layers (Fedus et al. 2022, equation 4).

    Shares and means are over all tokens of the batch, padding too; with accumulation over the tokens of a micro-batch, on a
    mesh of ``data`` alone over the tokens of one device. Layers run unrolled, with their activations stored.
    """

    reads_sown = True
    is_sum_of_tokens = False

    def of_pass(self, forced: ForcedPass) -> Array:
        """See ``LossTerm``."""
        sown = jax.tree.leaves(forced.sown)
        require(bool(sown), "training.loss_terms", "load_balance needs model.feed_forward=mixture_of_experts")
        return self.settings.weight * jnp.sum(forced.weights) * sum(sown)
