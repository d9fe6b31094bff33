"""State of the training: parameters, optimizer state, step and key."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, PyTree

LOSS_TERMS = "loss_terms"
"""The parameters of loss terms, beside the modules of the model."""
SOWN = "losses"
"""The collection into which modules sow arrays for loss terms and statistics."""


class TrainState(NamedTuple):
    """Parameters, optimizer state and the number of updates so far.

    The key is folded with the step, and with a constant for initial values, never split. ``step``
    is also the position in the data, since the order of batches is a pure function of seed and
    update.
    """

    step: Array
    params: PyTree
    optimizer_state: PyTree
    key_data: Array

    def dropout_key(self) -> Array:
        """Return the key of the next update."""
        return jax.random.fold_in(jax.random.wrap_key_data(self.key_data), self.step)


def create_state(
    init_params: Callable[[Array], PyTree], init_optimizer: Callable[[PyTree], PyTree], seed: Array | int
) -> TrainState:
    """Return the state before the first update."""
    params = init_params(jax.random.fold_in(jax.random.key(seed), 0x1217))
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        optimizer_state=init_optimizer(params),
        key_data=jax.random.key_data(jax.random.key(seed)),
    )


def param_shapes(init_params: Callable[[Array], PyTree]) -> PyTree:
    """Return shapes and types of the parameters that ``init_params`` makes from a key."""
    return jax.eval_shape(lambda: init_params(jax.random.key(0)))


def without_loss_terms(params: PyTree) -> PyTree:
    """Return the parameters of the model: only training uses the parameters of loss terms."""
    return {name: value for name, value in params.items() if name != LOSS_TERMS}


def count_parameters(params: PyTree) -> int:
    """Return the number of parameters (scalars), also of shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
