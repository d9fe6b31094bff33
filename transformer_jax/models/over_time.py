"""A step of a module repeated along time, compiled once."""

from collections.abc import Callable
from typing import TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import PyTree

SAMPLING = "dropout"
"""The stream of random numbers that words are drawn from; there is one in every training pass."""

ModuleType = TypeVar("ModuleType", bound=nn.Module)


def over_time(
    step: Callable[[ModuleType, PyTree, PyTree], tuple[PyTree, PyTree]],
    module: ModuleType,
    carry: PyTree,
    inputs: PyTree,
) -> tuple[PyTree, PyTree]:
    """A scan over the second axis, which each step sees with length 1, of inputs and outputs [B, T, ...]."""
    counts: list[dict] = []

    def one(module: ModuleType, carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
        # Flax folds the number of draws so far into every key, and the calls of a scan's body share that number: one call to
        # find constants, one to compile, but one a step under ``jax.disable_jit``. Here all steps count from the same number.
        assert module.scope is not None
        counts.append(_copied(module.scope.rng_counters))
        _restore(module.scope.rng_counters, counts[:2][-1])
        carry, left = step(module, carry, jax.tree.map(lambda leaf: leaf[:, None], at))
        return carry, jax.tree.map(lambda leaf: leaf[:, 0], left)

    rngs: dict = {"params": False, SAMPLING: True}
    scan = nn.scan(one, variable_broadcast="params", variable_axes={"intermediates": 0}, split_rngs=rngs)
    carry, left = scan(module, carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), inputs))
    return carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), left)


def _copied(counters: dict) -> dict:
    return {name: _copied(count) if isinstance(count, dict) else count for name, count in counters.items()}


def _restore(counters: dict, saved: dict) -> None:
    """Sets the nested ``counters`` in place: other scopes hold the inner dictionaries."""
    for name, count in saved.items():
        if isinstance(count, dict):
            _restore(counters[name], count)
        else:
            counters[name] = count
