"""Norms of parameters, gradients and hidden states, layer by layer (Wortsman et al. 2023)."""

import jax.numpy as jnp
import optax

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError
from transformer_jax.models.inspection import Activations
from transformer_jax.registry.plugins import register
from transformer_jax.training.statistics import Ratios, Statistic, ratio


def norms(tree: PyTree) -> Ratios:
    return {name: ratio(optax.tree.norm(branch)) for name, branch in tree.items()}


@register("statistic", "parameter_norms")
class ParameterNorms(Statistic):
    """Norm of the parameters of a layer (Wortsman et al. 2023)."""

    def of_update(self, params: PyTree, gradient: PyTree, tokens: Array, joined: Ratios) -> Ratios:
        return norms(params)


@register("statistic", "gradient_norms")
class GradientNorms(Statistic):
    """Norm of the gradient of a layer, of the mean loss, before clipping (Wortsman et al. 2023)."""

    def of_update(self, params: PyTree, gradient: PyTree, tokens: Array, joined: Ratios) -> Ratios:
        return norms(gradient)


@register("statistic", "activation_norms")
class ActivationNorms(Statistic):
    """Mean root mean square of the output of a layer, over tokens (Wortsman et al. 2023)."""

    reads_activations = True

    def of_pass(self, activations: Activations) -> Ratios:
        if not activations.hidden:
            raise ConfigError("training.watch", "activation_norms needs a Transformer")
        ratios = {}
        for path, (hidden, is_token) in activations.hidden.items():
            sizes = jnp.sqrt(jnp.mean(hidden.astype(jnp.float32) ** 2, axis=-1))
            ratios[path] = ratio(jnp.sum(sizes * is_token), jnp.sum(is_token))
        return ratios
