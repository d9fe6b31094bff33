"""Shapes that parts return: a wrong one is an error with function, line, and both shapes."""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError

# Paths of norms, residual connections and feed-forward layers, which return the shape of their
# first argument, and of positions, which return hidden states for integers.
LIKE_THEIR_INPUT = r"\w+_layers_\d+/(feed_forward|\w+_residual(/\w*norm)?)|\w+_norm"
PATH_OF_POSITIONS = r"(\w+_)?positions"


def require_shape(returned: Any, shape: PyTree, axes: str, function: Any) -> Any:
    """Return ``returned`` if it has ``shape``, a tree of shapes for a tree of arrays.

    Otherwise raises ConfigError with file and line of ``function``.
    """
    shapes = jax.tree.map(lambda leaf: getattr(leaf, "shape", type(leaf).__name__), returned)
    if shapes == shape:
        return returned
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None) or type(plain).__call__.__code__
    result, expected = (list(side) if isinstance(side, tuple) else side for side in (shapes, shape))
    problem = f"{code.co_qualname} returned {result}, expected [{axes}] = {expected}"
    raise ConfigError(f"{code.co_filename}, line {code.co_firstlineno}", problem)


@contextmanager
def checked_parts(d_model: int) -> Iterator[None]:
    """Check the shapes that the parts of a model return in a teacher-forced pass inside."""

    def check(method: Callable, arguments: tuple, options: dict, context: Any) -> Any:
        returned, path = method(*arguments, **options), "/".join(context.module.path)
        if context.method_name in ("__call__", "before", "after", "leave"):
            function = context.orig_method.func
            if re.fullmatch(PATH_OF_POSITIONS, path):
                return require_shape(returned, (*arguments[0].shape, d_model), "B, L, D", function)
            if re.fullmatch(LIKE_THEIR_INPUT, path):
                shape = jax.tree.map(jnp.shape, arguments[0])
                if context.method_name in ("before", "leave"):
                    shape = (*jax.tree.leaves(arguments[0])[0].shape[:2], d_model)
                return require_shape(returned, shape, "B, L, D", function)
        return returned

    with nn.intercept_methods(check):
        yield
