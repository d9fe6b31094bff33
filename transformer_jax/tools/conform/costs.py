"""Parameters, FLOPs and memory of a model, for a comparison with the model without the idea."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.tools.conform.trials import FIRST_WORD, Trial, optimized
from transformer_jax.tools.preflight.compiled_program import product_flops
from transformer_jax.training.state import count_parameters

ROWS, LENGTH = 4, 64


class Costs(NamedTuple):
    """Costs of loss and gradient of 4 x 64 tokens, and bytes of a cache for 64 tokens."""

    parameters: float
    flops: float
    activation_bytes: float
    cache_bytes: float
    state_bytes: float


def costs_of(trial: Trial) -> Costs:
    """Return the costs of a small model, from its jaxpr and from the compiler."""
    rows, shapes = trial.rows(LENGTH, ROWS, unequal=False), trial.update.state_shapes
    gradient = jax.grad(lambda params: trial.loss_sums(params, rows).loss)
    with optimized(True):
        memory = jax.jit(gradient).lower(shapes.params).compile().memory_analysis()
    inputs = jnp.full((ROWS, LENGTH if trial.has_source else 0), FIRST_WORD)
    cache = jax.eval_shape(lambda params: trial.start(params, inputs, 1, LENGTH), shapes.params)
    return Costs(
        count_parameters(shapes.params),
        # The compiler counts the body of a loop once.
        product_flops(gradient, shapes.params),
        float(memory.temp_size_in_bytes) if memory else 0.0,
        _bytes(cache),
        _bytes(shapes.optimizer_state),
    )


def _bytes(tree: PyTree) -> float:
    return float(sum(np.prod(leaf.shape, dtype=np.int64) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)))
