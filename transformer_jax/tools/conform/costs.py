"""Parameters, operations and memory of a model, to be shown beside those of the model without the idea."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.tools.conform.trials import Trial, sentences, single_mesh
from transformer_jax.training.state import count_parameters

ROWS, LENGTH = 4, 64


class Costs(NamedTuple):
    """Parameters; floating-point operations and temporary bytes of loss and gradient of 4 x 64 tokens; cache bytes of 64."""

    parameters: float
    flops: float
    activation_bytes: float
    cache_bytes: float
    state_bytes: float


def costs_of(trial: Trial) -> Costs:
    """Counted by the compiler for a small model."""
    rows, params = trial.rows(sentences(ROWS, LENGTH, unequal=False)), shapes_of(trial)
    gradient = jax.jit(jax.grad(lambda params: trial.loss_sums(params, rows).loss)).lower(params).compile()
    analysis = gradient.cost_analysis() or {}
    memory = gradient.memory_analysis()
    cache = jax.eval_shape(lambda params: _cache(trial, params), params)
    state = jax.tree.leaves(trial.update().state_shapes.optimizer_state)
    return Costs(
        count_parameters(params),
        float(analysis.get("flops", 0.0)),
        float(memory.temp_size_in_bytes) if memory else 0.0,
        _bytes(cache),
        _bytes(state),
    )


def shapes_of(trial: Trial) -> PyTree:
    """Shapes of the parameters of its model; runs no computation."""
    return jax.eval_shape(objective_of(trial.config, single_mesh()).init_params, jax.random.key(0))


def _cache(trial: Trial, params: PyTree) -> PyTree:
    model = trial.model()
    if not trial.has_source:
        inputs = jnp.zeros((ROWS, 0), jnp.int32)
        return model.apply({"params": params}, inputs, beam_width=1, max_length=LENGTH, method="init_cache")
    tokens = Tokens.from_ids(np.full((ROWS, LENGTH), 5, np.int32))
    memory = model.apply({"params": params}, tokens, train=False, method="encode")
    return model.apply({"params": params}, memory, beam_width=1, max_length=LENGTH, method="init_cache")


def _bytes(tree: PyTree) -> float:
    return float(sum(np.prod(leaf.shape, dtype=np.int64) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)))
