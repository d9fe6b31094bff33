"""Models whose methods are compiled whole: operation by operation, tests would spend their time on dispatch."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax

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
