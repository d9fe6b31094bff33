"""Search for the first non-finite tensor of a skipped update."""

from collections.abc import Callable
from operator import itemgetter

import jax
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import Hyperparameters
from transformer_jax.training.losses import LossFunction
from transformer_jax.training.sharding import path_of
from transformer_jax.training.step import interleaved, key_of_micro_batch


def find_nonfinite(
    activations: Callable[..., PyTree],
    loss: LossFunction,
    accumulation_steps: int,
    params: PyTree,
    batch: PyTree,
    key: Array,
    hyperparameters: Hyperparameters,
) -> str | None:
    """Repeat an update and name the first parameter, activation or gradient that is not finite.

    Returns None when all are finite: the next update may already have changed the parameters. With
    ``model.scan_layers`` or ``model.rematerialize`` the activations have other dropout masks than
    the loss.
    """
    names: list[str] = []

    # Compiled, though only for one update: primitive by primitive it would take minutes.
    @jax.jit
    def are_finite(params: PyTree, *inputs: PyTree) -> list[Array]:
        gradient = jax.grad(lambda params: loss(params, *inputs).loss)(params)
        tensors = _in_order({"parameters": params, "activations": activations(params, *inputs), "gradient": gradient})
        # A compiled function sorts the keys of dictionaries: the order is noted during tracing.
        names[:] = tensors
        return [jnp.all(jnp.isfinite(tensor)) for tensor in tensors.values()]

    micro_batches = jax.tree.map(lambda rows: interleaved(jnp.asarray(rows), accumulation_steps), batch)
    for number in range(accumulation_steps):
        step_key = key_of_micro_batch(key, number) if accumulation_steps > 1 else key
        finite = are_finite(params, jax.tree.map(itemgetter(number), micro_batches), step_key, hyperparameters)
        if not all(finite):
            return next(name for name, is_finite in zip(names, finite, strict=True) if not is_finite)
    return None


def _in_order(tree: PyTree, path: tuple = ()) -> dict[str, AnyArray]:
    """Return the leaves by their paths, sown values in the order of execution."""
    if isinstance(tree, dict):
        inner = (_in_order(branch, (*path, jax.tree_util.DictKey(key))) for key, branch in tree.items())
        return {name: leaf for leaves in inner for name, leaf in leaves.items()}
    return {path_of((*path, *rest)): leaf for rest, leaf in jax.tree_util.tree_leaves_with_path(tree)}
