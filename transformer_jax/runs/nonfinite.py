"""Report of the first non-finite values of a skipped update."""

import jax

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import Hyperparameters
from transformer_jax.tasks.protocol import Task
from transformer_jax.training.nonfinite import first_non_finite, first_non_finite_of
from transformer_jax.training.step import micro_batches


def find_nonfinite(
    task: Task, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters
) -> str | None:
    """Repeats an update, module by module, and names the first tensor that is not finite; None when all are.

    The parameters are still finite, since the update was skipped. The next update may have been made already, with the
    parameters it left; then the failure may not come back.
    """
    if found := first_non_finite({"parameters": params}):
        return found
    # Compiled, though only for one update: primitive by primitive it would take minutes.
    in_activations = first_non_finite_of(lambda *inputs: {"activations": task.activations(*inputs)})
    gradient_of = jax.grad(lambda params, *rows: task.loss(params, *rows).loss)
    in_gradient = first_non_finite_of(lambda *inputs: {"gradient": gradient_of(*inputs)})
    for rows, rows_key in micro_batches(batch, key, task.config.batching.accumulation_steps):
        inputs = params, rows, rows_key, hyperparameters
        if found := in_activations(*inputs) or in_gradient(*inputs):
            return found
    return None
