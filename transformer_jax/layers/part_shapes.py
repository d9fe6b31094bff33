"""Shapes that parts return: a wrong one is an error that names the function, its line, and both shapes."""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flax.linen as nn

from transformer_jax.array_types import Array
from transformer_jax.config import ConfigError

# Paths of the parts of a model that return arrays of the shape of their first argument: norms, residual connections and
# sublayers; and of positions, which return hidden states for integers.
LIKE_THEIR_INPUT = r"\w+_layers_\d+/(feed_forward|\w+_residual(/\w*norm)?)|\w+_norm"
PATH_OF_POSITIONS = r"(\w+_)?positions"


def require_shape(returned: Any, shape: tuple[int, ...], axes: str, function: Any) -> Array:
    """``returned``; raises ConfigError, with file and line of ``function``, unless it has this shape."""
    found = getattr(returned, "shape", None)
    if found == shape:
        array: Array = returned
        return array
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None) or type(plain).__call__.__code__
    result = type(returned).__name__ if found is None else list(found)
    problem = f"{code.co_qualname} returned {result}, expected [{axes}] = {list(shape)}"
    raise ConfigError(f"{code.co_filename}, line {code.co_firstlineno}", problem)


@contextmanager
def checked_parts(d_model: int) -> Iterator[None]:
    """Checks the shapes that the parts of a model return in a teacher-forced pass inside."""

    def check(method: Callable, arguments: tuple, options: dict, context: Any) -> Any:
        returned, path = method(*arguments, **options), "/".join(context.module.path)
        if context.method_name in ("__call__", "before", "after"):
            function = getattr(type(context.module), context.method_name)
            if re.fullmatch(LIKE_THEIR_INPUT, path):
                return require_shape(returned, arguments[0].shape, "B, L, D", function)
            if re.fullmatch(PATH_OF_POSITIONS, path):
                return require_shape(returned, (*arguments[0].shape, d_model), "B, L, D", function)
        return returned

    with nn.intercept_methods(check):
        yield
