"""Learning rates as functions of the update, counted from 1 as the paper counts its steps."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import AnyArray, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters
from transformer_jax.config.hyperparameters import hyperparameters_of
from transformer_jax.config.optimization import decays
from transformer_jax.config.update_schedules import Ramp
from transformer_jax.registry.plugins import register, registered

# The fall of the rate between averaged checkpoints from which on it is reported.
FALLEN = 1.5
Schedule = Callable[[AnyArray | int], Any]
"""Number of the update to the rate, float32. NumPy computes it on the host, JAX for a JAX array."""


def _registered(formula: Callable[[Any, Hyperparameters, int, Any], Any]) -> Callable[..., Any]:
    """Register a formula of update, hyperparameters, width, and the NumPy that computes it."""

    @register("schedule", formula.__name__)
    @wraps(formula)
    def schedule(settings: None, hyperparameters: Hyperparameters, d_model: int) -> Schedule:
        def rate(step: AnyArray | int) -> Any:
            number, xp = float32_step(step)
            return formula(number, hyperparameters, d_model, xp)

        return rate

    return formula


@_registered
def noam(step: Any, hyperparameters: Hyperparameters, d_model: int, xp: Any) -> Any:
    """Return factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (paper, equation 3)."""
    return (
        hyperparameters.learning_rate
        * d_model**-0.5
        * xp.minimum(step**-0.5, step * hyperparameters.warmup_updates**-1.5)
    )


@_registered
def inverse_square_root(step: Any, hyperparameters: Hyperparameters, d_model: int, xp: Any) -> Any:
    """Return the shape of ``noam`` with its peak, ``learning_rate``, after ``warmup_updates``."""
    warmup = hyperparameters.warmup_updates
    return hyperparameters.learning_rate * xp.minimum(step / warmup, (warmup / step) ** 0.5)


@_registered
def cosine(step: Any, hyperparameters: Hyperparameters, d_model: int, xp: Any) -> Any:
    """Return linear warm-up, then half a cosine down to 0 (Loshchilov and Hutter 2017)."""
    warmup = hyperparameters.warmup_updates
    done = xp.clip((step - warmup) / (hyperparameters.num_updates - warmup), 0.0, 1.0)
    return hyperparameters.learning_rate * xp.minimum(step / warmup, 0.5 * (1.0 + xp.cos(np.pi * done)))


@_registered
def linear(step: Any, hyperparameters: Hyperparameters, d_model: int, xp: Any) -> Any:
    """Return linear warm-up, then a straight line down to 1e-4 of the rate (word2vec.c)."""
    warmup = hyperparameters.warmup_updates
    left = (hyperparameters.num_updates - step) / (hyperparameters.num_updates - warmup)
    return hyperparameters.learning_rate * xp.minimum(step / warmup, xp.maximum(left, 1e-4))


@_registered
def constant(step: Any, hyperparameters: Hyperparameters, d_model: int, xp: Any) -> Any:
    """Return linear warm-up to ``learning_rate``, then that."""
    return hyperparameters.learning_rate * xp.minimum(step / hyperparameters.warmup_updates, 1.0)


def of_next_update(hyperparameters: PyTree, step: AnyArray | int) -> PyTree:
    """Return the hyperparameters of the update after ``step``, with values of their schedules."""

    def value(number: Any) -> Any:
        if not isinstance(number, Ramp):
            return number
        update, xp = float32_step(step + 1)
        return number.at(update, hyperparameters.num_updates, xp)

    return jax.tree.map(value, hyperparameters, is_leaf=lambda leaf: isinstance(leaf, Ramp))


def make_schedule(
    name: str, hyperparameters: Hyperparameters, d_model: int, parts: Mapping[str, Any] = MappingProxyType({})
) -> Schedule:
    return registered("schedule")[name](parts.get(name), hyperparameters, d_model)


def remark_on_average(config: ExperimentConfig, steps: Sequence[int], progress: Mapping[str, Any]) -> str:
    """Return a remark if the rate fell much between averaged checkpoints: the newest may be better.

    ``progress``: of the newest checkpoint, with the length of a run that was shortened.
    """
    name = config.optimizer.schedule
    if len(steps) < 2 or not decays(name):
        return ""
    hyperparameters = hyperparameters_of(config)
    length = progress.get("counters", {}).get("num_updates") or hyperparameters.num_updates
    # Of a shortened run only the decay matters here.
    hyperparameters = hyperparameters._replace(num_updates=float(length), warmup_updates=1.0)
    schedule = make_schedule(name, hyperparameters, config.model.d_model, config.parts)
    first, last = (float(schedule(step)) for step in (steps[0], steps[-1]))
    if first < FALLEN * last:
        return ""
    fell = f"from {first:.2g} at update {steps[0]:,} to {last:.2g} at update {steps[-1]:,}"
    lowered = f"optimizer.schedule={name} lowered the learning rate {fell}, which does the work of an average"
    alone = f"checkpoint {steps[-1]} alone may be better: compare them on the validation split"
    return f"average of {len(steps)} checkpoints: {lowered}; {alone}"


def float32_step(step: AnyArray | int) -> tuple[Any, Any]:
    """Return ``step`` as float32, and the NumPy that computes with it: JAX's for a JAX array."""
    return (step.astype(jnp.float32), jnp) if isinstance(step, jax.Array) else (np.float32(step), np)
