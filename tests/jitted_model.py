"""Models whose methods are compiled whole: operation by operation, tests would spend their time on
dispatch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PyTree


class JittedModel:
    """``model`` with ``apply`` under jit, one program for each method, its options and shapes."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._programs: dict[tuple, Any] = {}

    def apply(self, variables: PyTree, *arguments: PyTree, rngs: PyTree = None, **options: Any) -> PyTree:
        """As ``nn.Module.apply``; options are static."""
        key = tuple(sorted(options.items()))
        if key not in self._programs:
            self._programs[key] = jax.jit(partial(self._apply, **options))
        return self._programs[key](variables, arguments, rngs)

    def _apply(self, variables: PyTree, arguments: tuple, rngs: PyTree, **options: Any) -> PyTree:
        return self.model.apply(variables, *arguments, rngs=rngs, **options)


def random_params(init: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """Numbers of the shapes of ``init(*arguments)``, which is not compiled; no parameter is zero,
    one or the identity."""
    generator = np.random.default_rng(0)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        mean = 1.0 if path[-1].key == "scale" else 0.0
        return jnp.asarray(generator.normal(mean, 0.3, leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(init, *arguments))
