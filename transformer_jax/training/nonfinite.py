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
    """Repeats an update, module by module, and names the first tensor that is not finite; None when all are.

    The parameters are still finite, since the update was skipped. The next update may have been made already, with the
    parameters it left; then the failure may not come back.
    """
    if found := first_non_finite({"parameters": params}):
        return found
    # Compiled, though only for one update: primitive by primitive it would take minutes.
    in_activations = _first_non_finite_of(lambda *inputs: {"activations": activations(*inputs)})
    gradient_of = jax.grad(lambda params, *rows: loss(params, *rows).loss)
    in_gradient = _first_non_finite_of(lambda *inputs: {"gradient": gradient_of(*inputs)})
    micro_batches = jax.tree.map(lambda rows: interleaved(jnp.asarray(rows), accumulation_steps), batch)
    for number in range(accumulation_steps):
        own_key = key_of_micro_batch(key, number) if accumulation_steps > 1 else key
        inputs = params, jax.tree.map(itemgetter(number), micro_batches), own_key, hyperparameters
        if found := in_activations(*inputs) or in_gradient(*inputs):
            return found
    return None


def first_non_finite(tree: PyTree) -> str | None:
    """Path of the first leaf, in the tree's own order, that holds an infinity or a NaN; None when all is finite."""
    for key_path, leaf in _leaves_in_written_order(tree, ()):
        # Not numpy: part of the leaf may live where this process cannot read.
        if not jnp.all(jnp.isfinite(leaf)):
            return path_of(key_path)
    return None


def _first_non_finite_of(function: Callable[..., PyTree]) -> Callable[..., str | None]:
    """``first_non_finite`` of the result of ``function``, compiled.

    A compiled function returns dictionaries with their keys sorted, so the order is noted while it is traced.
    """
    paths: list[str] = []

    @jax.jit
    def leaves_in_order(*arguments: PyTree) -> list[AnyArray]:
        leaves = _leaves_in_written_order(function(*arguments), ())
        paths[:] = [path_of(key_path) for key_path, _ in leaves]
        return [leaf for _, leaf in leaves]

    def find(*arguments: PyTree) -> str | None:
        leaves = leaves_in_order(*arguments)
        return first_non_finite(dict(zip(paths, leaves, strict=True)))

    return find


def _leaves_in_written_order(tree: PyTree, prefix: tuple) -> list[tuple[tuple, AnyArray]]:
    """Like tree_leaves_with_path, but dictionaries keep their order, which for sown values is the order of execution."""
    if isinstance(tree, dict):
        return [
            found
            for key, branch in tree.items()
            for found in _leaves_in_written_order(branch, (*prefix, jax.tree_util.DictKey(key)))
        ]
    return [((*prefix, *path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
