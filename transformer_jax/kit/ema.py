"""Exponential moving average of the parameters (Polyak and Juditsky 1992)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import Hyperparameters
from transformer_jax.config.checks import setting
from transformer_jax.registry.plugins import register
from transformer_jax.training.optimizers import Averaging, MakeRule


@dataclass(frozen=True)
class EmaSettings:
    decay: float = setting(0.999, "Weight of the average, at most (1 + t) / (10 + t).", below=1, program="traced")


class EmaState(NamedTuple):
    """The number of updates, the average, and the state of the update rule."""

    number: Array
    average: PyTree
    rule: optax.OptState


@register("averaging", "ema", settings=EmaSettings)
class Ema(Averaging):
    """Exponential moving average of the parameters of any optimizer, evaluated instead of them.

    As TensorFlow's ExponentialMovingAverage.
    """

    @staticmethod
    def averaged(
        settings: EmaSettings, hyperparameters: Hyperparameters, make_rule: MakeRule, rate: ArrayLike
    ) -> optax.GradientTransformation:
        rule = make_rule(hyperparameters)

        def init(params: PyTree) -> EmaState:
            return EmaState(jnp.zeros((), jnp.int32), jax.tree.map(jnp.copy, params), rule.init(params))

        def update(updates: PyTree, state: EmaState, params: PyTree) -> tuple[PyTree, EmaState]:
            updates, inner = rule.update(updates, state.rule, params)
            count = state.number + 1
            decay = jnp.minimum(settings.decay, (1.0 + count) / (10.0 + count))
            average = optax.incremental_update(optax.apply_updates(params, updates), state.average, 1.0 - decay)
            return updates, EmaState(count, average, inner)

        return optax.GradientTransformation(init, update)

    @staticmethod
    def evaluation_params(state: EmaState, params: PyTree) -> PyTree:
        return state.average
