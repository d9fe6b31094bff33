"""Learning rates as functions of the update, counted from 1 as the paper counts its steps."""

from collections.abc import Callable

import jax.numpy as jnp
import optax

from transformer_jax.array_types import Array
from transformer_jax.config import OptimizerConfig

Schedule = Callable[[Array | int], Array]


def noam(config: OptimizerConfig, d_model: int, num_updates: int) -> Schedule:
    """factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (Vaswani et al. 2017, equation 3)."""

    def rate(step: Array | int) -> Array:
        step = jnp.asarray(step, jnp.float32)
        return config.learning_rate * d_model**-0.5 * jnp.minimum(step**-0.5, step * config.warmup_updates**-1.5)

    return rate


def inverse_square_root(config: OptimizerConfig, d_model: int, num_updates: int) -> Schedule:
    """The shape of ``noam`` with the peak stated: ``learning_rate`` after ``warmup_updates``."""

    def rate(step: Array | int) -> Array:
        step = jnp.asarray(step, jnp.float32)
        return config.learning_rate * jnp.minimum(step / config.warmup_updates, (config.warmup_updates / step) ** 0.5)

    return rate


def cosine(config: OptimizerConfig, d_model: int, num_updates: int) -> Schedule:
    """Linear warm-up to ``learning_rate``, then half a cosine down to 0 at the last update (Loshchilov and Hutter 2017)."""
    return optax.warmup_cosine_decay_schedule(0.0, config.learning_rate, config.warmup_updates, num_updates)


def constant(config: OptimizerConfig, d_model: int, num_updates: int) -> Schedule:
    """Linear warm-up to ``learning_rate``, then that."""
    return optax.linear_schedule(0.0, config.learning_rate, config.warmup_updates)


SCHEDULES = {"noam": noam, "inverse_square_root": inverse_square_root, "cosine": cosine, "constant": constant}


def make_schedule(config: OptimizerConfig, d_model: int, num_updates: int) -> Schedule:
    """The schedule named in ``config``."""
    return SCHEDULES[config.schedule](config, d_model, num_updates)
