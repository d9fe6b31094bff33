"""Frozen parameters, chosen by their paths."""

import re
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax import lax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError
from transformer_jax.training.parameter_names import named_leaves, some_of
from transformer_jax.training.sharding import path_of


def frozen_mask(params: PyTree, pattern: str) -> PyTree:
    """True for the leaves in whose path ``pattern`` is found; of shapes too.

    Raises ConfigError when that is none of them or all.
    """
    mask = jax.tree_util.tree_map_with_path(lambda path, _: re.search(pattern, path_of(path)) is not None, params)
    found = jax.tree.leaves(mask)
    if all(found) or not any(found):
        problem = "is found in the path of every parameter" if all(found) else "is found in the path of no parameter"
        names = some_of(list(named_leaves(params)))
        raise ConfigError(f"optimizer.freeze: {pattern!r} {problem}; paths are {names}")
    return mask


def frozen(optimizer: optax.GradientTransformation, pattern: str) -> optax.GradientTransformation:
    """``optimizer`` for all but the parameters that ``pattern`` chooses: these are not updated, decayed or given any state."""

    def kinds(params: PyTree) -> PyTree:
        return jax.tree.map(lambda is_frozen: "frozen" if is_frozen else "trained", frozen_mask(params, pattern))

    return optax.partition({"trained": optimizer, "frozen": optax.set_to_zero()}, kinds)


def without_gradient(loss: Callable[..., Any], pattern: str) -> Callable[..., Any]:
    """``loss(params, ...)`` whose gradient is 0 for the parameters that ``pattern`` chooses: so its norm is that of the others.

    Nor is it computed for them, except under ``model.scan_layers`` where only some layers are frozen: layers are stacked there,
    and the gradient of the stack is computed whole before the part of the frozen ones is dropped.
    """

    def loss_of_trained(params: PyTree, *rest: Any) -> Any:
        mask = frozen_mask(params, pattern)
        stopped = jax.tree.map(lambda leaf, is_frozen: lax.stop_gradient(leaf) if is_frozen else leaf, params, mask)
        return loss(stopped, *rest)

    return loss_of_trained


def trained_share(params: PyTree, pattern: str) -> str:
    """Number of parameters that are trained, in a line."""
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    mask = jax.tree.leaves(frozen_mask(params, pattern))
    trained = sum(size for size, is_frozen in zip(sizes, mask, strict=True) if not is_frozen)
    held = f"{sum(mask)} of {len(mask)} arrays"
    return f"{trained:,} of {sum(sizes):,} parameters train; optimizer.freeze={pattern!r} holds {held}"
