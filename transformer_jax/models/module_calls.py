"""The modules of a model as they call each other, from an abstract forward pass: no array is made."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import flax.linen as nn
import jax

from transformer_jax.array_types import PyTree
from transformer_jax.models.interface import call

SETUP = "setup"


@dataclass
class ModuleCall:
    """One call of a method of a module: its ``path`` in the parameters, its class, the shape of what it returns.

    ``shape`` is that of the first array, None where it returns none; ``inner`` are the calls made meanwhile, in their order.
    """

    path: tuple[str, ...]
    kind: str
    method: str
    shape: tuple[int, ...] | None = None
    inner: list["ModuleCall"] = field(default_factory=list)

    def walk(self) -> Iterator["ModuleCall"]:
        """This call and all inside it."""
        yield self
        for each in self.inner:
            yield from each.walk()


def module_calls(model: nn.Module, params: PyTree, *inputs: PyTree) -> ModuleCall:
    """The calls of a teacher-forced pass over ``inputs``, as a tree; ``params`` and ``inputs`` may be shapes.

    A call that a scan or a retrace repeats is there once.
    """
    root = ModuleCall((), type(model).__name__, "__call__")
    open_calls = [root]

    def record(next_method: Any, arguments: Any, options: Any, context: nn.module.InterceptorContext) -> Any:
        module, method = context.module, context.method_name
        if method == SETUP or not module.path:
            return next_method(*arguments, **options)
        found = ModuleCall(tuple(module.path), type(module).__name__, method)
        open_calls.append(found)
        result = next_method(*arguments, **options)
        open_calls.pop()
        leaves = [leaf.shape for leaf in jax.tree.leaves(result) if hasattr(leaf, "shape")]
        found.shape = tuple(leaves[0]) if leaves else None
        siblings = open_calls[-1].inner
        if found not in siblings:
            siblings.append(found)
        return result

    def forward(params: PyTree, *inputs: PyTree) -> PyTree:
        with nn.intercept_methods(record):
            return call(model, params, "__call__", *inputs, train=False)

    jax.eval_shape(forward, params, *inputs)
    return root
