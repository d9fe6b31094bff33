"""Operations of the matrix products of a function, counted in its jaxpr: two for each multiplication and addition."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core


def product_flops(function: Callable[..., Any], *arguments: Any) -> int:
    """FLOPs of the matrix products of one call, for arguments that may be shapes. A loop of unknown length counts once."""
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def _count(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            total += _product(equation)
        inner = [_count(each) for each in _inner(equation)]
        if equation.primitive.name == "cond":
            # Of branches by platform, one runs.
            total += max(inner)
        else:
            # A loop, the grid of a kernel, or every device of a mesh runs what is inside.
            grid = getattr(equation.params.get("grid_mapping"), "grid", ())
            devices = getattr(equation.params.get("mesh"), "size", 1)
            total += equation.params.get("length", 1) * math.prod(grid) * devices * sum(inner)
    return total


def _product(equation: core.JaxprEqn) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left: Any = equation.invars[0].aval
    result: Any = equation.outvars[0].aval
    return 2 * math.prod(result.shape) * math.prod(left.shape[axis] for axis in contracted)


def _inner(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """The jaxprs that an equation runs; of a function with its own gradient only the function."""
    for name, value in equation.params.items():
        if name in ("fwd_jaxpr_thunk", "bwd"):
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            # A closed jaxpr holds one; newer releases of JAX have one type for both.
            inner = getattr(each, "jaxpr", each)
            if isinstance(inner, core.Jaxpr):
                yield inner
