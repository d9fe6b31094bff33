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

    def one(module: ModuleType, carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
        carry, left = step(module, carry, jax.tree.map(lambda leaf: leaf[:, None], at))
        return carry, jax.tree.map(lambda leaf: leaf[:, 0], left)

    rngs: dict = {"params": False, SAMPLING: True}
    scan = nn.scan(one, variable_broadcast="params", variable_axes={"intermediates": 0}, split_rngs=rngs)
    carry, left = scan(module, carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), inputs))
    return carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), left)
