"""Update rules, all of them optax's."""

import jax
import optax

from transformer_jax.array_types import PyTree
from transformer_jax.config import Hyperparameters
from transformer_jax.config.plugins import registered
from transformer_jax.training.schedules import Schedule


def _adam(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    return [optax.scale_by_adam(hyperparameters.b1, hyperparameters.b2, hyperparameters.epsilon)]


def _adamw(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    return [
        optax.scale_by_adam(hyperparameters.b1, hyperparameters.b2, hyperparameters.epsilon),
        _decay(hyperparameters),
    ]


def _adafactor(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    rule = [optax.scale_by_factored_rms(), optax.clip_by_block_rms(1.0), optax.scale_by_param_block_rms()]
    return [*rule, _decay(hyperparameters)]


def _sgd(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    return []


def _adagrad(hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    return [optax.scale_by_rss(initial_accumulator_value=1.0, eps=hyperparameters.epsilon)]


def _decay(hyperparameters: Hyperparameters) -> optax.GradientTransformation:
    return optax.add_decayed_weights(
        0.0 if hyperparameters.weight_decay is None else hyperparameters.weight_decay, mask=_is_matrix
    )


RULES = {"adam": _adam, "adamw": _adamw, "adafactor": _adafactor, "sgd": _sgd, "adagrad": _adagrad}


def make_optimizer(name: str, hyperparameters: Hyperparameters, schedule: Schedule) -> optax.GradientTransformation:
    """Clipping by global norm, the rule of that name, then minus the learning rate.

    optax counts updates from 0 and the schedules from 1. Adafactor (Shazeer and Stern 2018) multiplies its rate with the
    parameter's scale, so its ``learning_rate`` is relative.
    """
    clipping = [] if hyperparameters.clip_norm is None else [optax.clip_by_global_norm(hyperparameters.clip_norm)]
    rule = (RULES | registered("optimizer"))[name](hyperparameters)
    return optax.chain(*clipping, *rule, optax.scale_by_learning_rate(lambda count: schedule(count + 1)))


def _is_matrix(params: PyTree) -> PyTree:
    """Weight decay is for matrices, not for biases and gains (Loshchilov and Hutter 2019 decay all; this is today's custom)."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)
