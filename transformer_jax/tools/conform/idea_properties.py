"""Properties of an idea beside the model without it, such as that it acts.

They take a ``Trial`` and the length of its sentences, return a few words, and raise ``Broken``.
"""

import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.registry.python_files import is_loaded, loaded_plugins, text_of_plugin
from transformer_jax.tools.conform.comparison import Broken
from transformer_jax.tools.conform.ideas import KINDS
from transformer_jax.tools.conform.trials import ROWS, Trial, sentences
from transformer_jax.training.sharding import path_of

# Beyond rounding: sums in another order differ by less.
DIFFERENT = 1e-5


def every_parameter_gets_a_gradient(trial: Trial, length: int) -> str:
    """Check that no array of parameters has a gradient that is 0 everywhere."""
    rows = trial.rows(length)
    gradient = jax.jit(jax.grad(lambda params: trial.loss_sums(params, rows).loss))(trial.params)
    leaves, not_trained = jax.tree_util.tree_leaves_with_path(gradient), trial.update.not_trained
    if not_trained:
        leaves = [(path, leaf) for path, leaf in leaves if not re.search(not_trained, path_of(path))]
    still = [path_of(path) for path, leaf in leaves if not np.abs(np.asarray(leaf)).max(initial=0.0) > 0.0]
    if still:
        others = f" and {len(still) - 1} more" if len(still) > 1 else ""
        raise Broken(f"{still[0]}{others}: no gradient", _line_of_string(still[0].rpartition("/")[2]))
    return f"{len(leaves)} arrays"


def _line_of_string(text: str) -> str:
    """Return ``FILE, line N`` of the first line of a plugin with this string, else ""."""
    for file in loaded_plugins():
        for number, line in enumerate(text_of_plugin(file).decode(errors="replace").splitlines(), 1):
            if f'"{text}"' in line or f"'{text}'" in line:
                return f"{file}, line {number}"
    return ""


def differs_from_the_base(trial: Trial, length: int) -> str:
    """Check that the model or the update is not the one without the idea."""
    base = Trial(trial.base)
    if trial.base == trial.config:
        return "not compared: the base selects it too"
    if jax.tree.map(jnp.shape, base.params) != jax.tree.map(jnp.shape, trial.params):
        return "other parameters"
    if trial.idea.kind == "statistic":
        return "adds to the log"
    if KINDS[trial.idea.kind].is_of_training:
        rows = trial.rows(length)
        # Schedules of the update may begin at 0.
        before = trial.config.training.num_updates - 2 if trial.config.schedules else 0
        ours, theirs = (_after_two(model, rows, before) for model in (trial, base))
    elif trial.idea.kind == "initialization":
        ours, theirs = trial.initial_state.params, base.initial_state.params
    else:
        batch = sentences(ROWS, length).batch
        ours, theirs = trial.logits(batch), np.asarray(base.teacher_forced(trial.params, batch))
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    difference = max(float(np.abs(np.asarray(one) - np.asarray(other)).max(initial=0.0)) for one, other in pairs)
    if difference <= DIFFERENT:
        raise Broken("computes the same as the model without it")
    return f"by {difference:.1g}"


def _after_two(trial: Trial, rows: PyTree, before: int) -> PyTree:
    start = trial.initial_state
    state, _ = trial.updated(rows, 2, state=start._replace(step=start.step + before))
    return trial.update.evaluation_params(state)


def float32_stays_float32(trial: Trial, length: int) -> str:
    """Check that in float32 nothing is rounded to fewer bits than without the idea."""
    in_base = {_source(equation) for equation in _rounding(Trial(trial.base), length)}
    for equation in _rounding(trial, length):
        if _source(equation) not in in_base:
            lines = (f"{file}, line {line}" for file, line in _frames(equation) if is_loaded(file))
            raise Broken(f"rounds float32 to {equation.outvars[0].aval.dtype}", next(lines, ""))
    return "no rounding"


def _rounding(trial: Trial, length: int) -> Iterator[Any]:
    """Yield the operations of the loss that return 16-bit floats, or round to their bits."""
    rows = trial.rows(length)
    program = jax.make_jaxpr(lambda params: trial.loss_sums(params, rows).loss)(trial.update.state_shapes.params)
    for equation in _equations(program.jaxpr):
        types = [getattr(variable.aval, "dtype", None) for variable in equation.outvars]
        is_short = any(
            dtype is not None and jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4 for dtype in types
        )
        if is_short or equation.primitive.name == "reduce_precision":
            yield equation


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the operations of a program and of the programs inside of it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def _frames(equation: Any) -> list[tuple[str, int]]:
    """Return file and line of the calls that an operation comes from, the innermost first."""
    traceback = equation.source_info.traceback
    return [(frame.file_name, frame.line_num) for frame in traceback.frames] if traceback else []


def _source(equation: Any) -> tuple[Any, ...]:
    return equation.primitive.name, *_frames(equation)[:1]
