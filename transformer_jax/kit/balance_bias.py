"""Balance of experts without a loss: biases of the choice that follow loads (Wang et al. 2024)."""

from dataclasses import dataclass

import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.checks import setting
from transformer_jax.models.inspection import Activations
from transformer_jax.registry.plugins import register
from transformer_jax.training.statistics import AfterUpdate, Ratios, ratio


@dataclass(frozen=True)
class BalanceBiasSettings:
    rate: float = setting(1e-3, "Change of a bias in an update (u).", at_least=0, program="traced")

    def check_new_run(self, config: ExperimentConfig) -> None:
        experts = config.parts.get("mixture_of_experts")
        if experts is None or not experts.balance_bias:
            problem = "balance_bias needs model.feed_forward=mixture_of_experts with its balance_bias=True"
            raise ConfigError("optimizer.after_update", problem)


@register("after_update", "balance_bias", settings=BalanceBiasSettings)
class BalanceBias(AfterUpdate):
    """b + u sign(mean load - load) for every expert, by its load in the batch (algorithm 1).

    Departures: the bias is added to probabilities of a softmax, not of sigmoids, and padding is
    routed and counted too. Loads are of the whole batch, over its micro-batches and devices. Layers
    run unrolled, with their activations stored.
    """

    not_trained = r"feed_forward/balance_bias$"
    reads_sown = True

    def of_pass(self, activations: Activations) -> Ratios:
        """Return the numbers of tokens of an expert and of all, [2, E]."""
        loads = {path: sum(sown) for path, sown in activations.sown.items() if path.endswith("/expert_load")}
        return {path: ratio(load, jnp.full_like(load, jnp.sum(load))) for path, load in loads.items()}

    def after_update(self, params: PyTree, statistics: Ratios) -> PyTree:
        leaves = flatten_dict(params, sep="/")
        for path, (load, total) in statistics.items():
            bias = path.removesuffix("expert_load") + "balance_bias"
            leaves[bias] += self.settings.rate * jnp.sign(total / len(load) - load)
        return unflatten_dict(leaves, sep="/")
