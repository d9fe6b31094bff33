"""Update rules, all of them optax's."""

import jax
import optax

from transformer_jax.array_types import PyTree
from transformer_jax.config import OptimizerConfig
from transformer_jax.training.freezing import frozen
from transformer_jax.training.schedules import Schedule


def _adam(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    return [optax.scale_by_adam(config.b1, config.b2, config.epsilon)]


def _adamw(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    decay = optax.add_decayed_weights(config.weight_decay, mask=_is_matrix)
    return [optax.scale_by_adam(config.b1, config.b2, config.epsilon), decay]


def _adafactor(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    decay = optax.add_decayed_weights(config.weight_decay, mask=_is_matrix)
    return [optax.scale_by_factored_rms(), optax.clip_by_block_rms(1.0), optax.scale_by_param_block_rms(), decay]


RULES = {"adam": _adam, "adamw": _adamw, "adafactor": _adafactor}


def make_optimizer(config: OptimizerConfig, schedule: Schedule) -> optax.GradientTransformation:
    """Clipping by global norm, the rule named in ``config``, then minus the learning rate.

    Parameters that ``config.freeze`` chooses stay as they are. optax counts updates from 0 and the schedules from 1.
    Adafactor (Shazeer and Stern 2018) multiplies its rate with the parameter's scale, so its ``learning_rate`` is relative.
    """
    clipping = [optax.clip_by_global_norm(config.clip_norm)] if config.clip_norm else []
    optimizer = optax.chain(
        *clipping, *RULES[config.name](config), optax.scale_by_learning_rate(lambda count: schedule(count + 1))
    )
    return frozen(optimizer, config.freeze) if config.freeze else optimizer


def _is_matrix(params: PyTree) -> PyTree:
    """Weight decay is for matrices, not for biases and gains (Loshchilov and Hutter 2019 decay all; this is today's custom)."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)
