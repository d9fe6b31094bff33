"""Finding the first tensor that is not finite, after a step said that something was not."""

import jax
import numpy as np

from transformer_jax.array_types import AnyArray, PyTree
from transformer_jax.training.sharding import path_of


def first_non_finite(tree: PyTree) -> str | None:
    """Path of the first leaf, in the tree's own order, that holds an infinity or a NaN; None when all is finite."""
    for key_path, leaf in _leaves_in_written_order(tree, ()):
        if not np.all(np.isfinite(np.asarray(leaf))):
            return path_of(key_path)
    return None


def _leaves_in_written_order(tree: PyTree, prefix: tuple) -> list[tuple[tuple, AnyArray]]:
    """Like tree_leaves_with_path, but dictionaries keep their order, which for sown values is that of execution."""
    if isinstance(tree, dict):
        return [
            found
            for key, branch in tree.items()
            for found in _leaves_in_written_order(branch, (*prefix, jax.tree_util.DictKey(key)))
        ]
    return [((*prefix, *path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
