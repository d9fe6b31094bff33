"""Search for the first non-finite tensor of a skipped update."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, PyTree
from transformer_jax.training.sharding import path_of


def first_non_finite(tree: PyTree) -> str | None:
    """Path of the first leaf, in the tree's own order, that holds an infinity or a NaN; None when all is finite."""
    for key_path, leaf in _leaves_in_written_order(tree, ()):
        # Not numpy: part of the leaf may live where this process cannot read.
        if not jnp.all(jnp.isfinite(leaf)):
            return path_of(key_path)
    return None


def first_non_finite_of(function: Callable[..., PyTree]) -> Callable[..., str | None]:
    """``first_non_finite`` of what ``function`` returns, compiled.

    What a compiled function returns has the keys of its dictionaries sorted, so the order is taken down while it is traced.
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
    """Like tree_leaves_with_path, but dictionaries keep their order, which for sown values is that of execution."""
    if isinstance(tree, dict):
        return [
            found
            for key, branch in tree.items()
            for found in _leaves_in_written_order(branch, (*prefix, jax.tree_util.DictKey(key)))
        ]
    return [((*prefix, *path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
