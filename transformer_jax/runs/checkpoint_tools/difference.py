"""Differences between the parameters of two checkpoints."""

import math
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import AnyArray
from transformer_jax.checkpoints.manager import Checkpoints, on_host
from transformer_jax.checkpoints.selection import chosen_step
from transformer_jax.config import ConfigError, load_run_config
from transformer_jax.evaluation.text_table import aligned_table
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.training.parameter_names import named_leaves

Arrays = Mapping[str, AnyArray]


class Distance(NamedTuple):
    """``relative``: the norm of the difference over the norm of the left one; ``largest``: of the differences of numbers."""

    name: str
    relative: float
    largest: float


class ParameterDifference(NamedTuple):
    """Parameters only in one, those of two shapes, and the distances of the rest, largest relative distance first."""

    only_left: list[str]
    only_right: list[str]
    reshaped: list[tuple[str, tuple[int, ...], tuple[int, ...]]]
    distances: list[Distance]
    total: float


def compare_parameters(left: Arrays, right: Arrays) -> ParameterDifference:
    """Compares arrays by their paths; ``total`` is the relative distance of all shared ones, taken as one vector."""
    shared = [name for name in left if name in right]
    same = [name for name in shared if left[name].shape == right[name].shape]
    squares = {name: _squares(left[name], right[name]) for name in same}
    distances = [
        Distance(
            name, _relative(*squares[name]), float(np.max(np.abs(_wide(left[name]) - _wide(right[name])), initial=0))
        )
        for name in same
    ]
    # NaN comes first, where it is seen.
    distances.sort(key=lambda each: (not math.isnan(each.relative), -each.relative, each.name))
    return ParameterDifference(
        only_left=[name for name in left if name not in right],
        only_right=[name for name in right if name not in left],
        reshaped=[(name, left[name].shape, right[name].shape) for name in shared if name not in squares],
        distances=distances,
        total=_relative(sum(of for of, _ in squares.values()), sum(of for _, of in squares.values())),
    )


def read_parameters(run: RunDirectory, which: str) -> tuple[int, dict[str, AnyArray]]:
    """The step that ``which`` means and its parameters by path, in this machine's memory.

    Raises CheckpointError when there is no such checkpoint, or it cannot be read.
    """
    step = chosen_step(run, which)
    with closing(Checkpoints(run.checkpoints, read_only=True)) as checkpoints:
        return step, named_leaves(checkpoints.restore_params(step, on_host(checkpoints.shapes(step))))


def require_same_kind(left: RunDirectory, right: RunDirectory) -> None:
    """Raises ConfigError unless both runs are models of one kind, whose parameters have something to do with each other."""
    kinds = [load_run_config(run.path).model.kind for run in (left, right)]
    if kinds[0] != kinds[1]:
        raise ConfigError(
            f"diff: {left.path} is a model of kind {kinds[0]}, {right.path} one of kind {kinds[1]}; their parameters cannot be "
            "compared"
        )


def difference_table(difference: ParameterDifference, left: str, right: str) -> str:
    """The difference as text."""
    lines = [f"only in {left}: {name}" for name in difference.only_left]
    lines += [f"only in {right}: {name}" for name in difference.only_right]
    lines += [
        f"other shape: {name}: {before} in {left}, {after} in {right}" for name, before, after in difference.reshaped
    ]
    moved = [each for each in difference.distances if each.relative != 0]
    if moved:
        rows = [("parameters", "relative distance", "largest difference")]
        rows += [(name, f"{relative:.3e}", f"{largest:.3e}") for name, relative, largest in moved]
        lines.append(aligned_table(rows, "lrr"))
    equal = len(difference.distances) - len(moved)
    lines.append(
        f"{len(moved)} arrays differ, {equal} are equal; relative distance of all that both have {difference.total:.3e}"
    )
    return "\n".join(lines)


def _wide(array: AnyArray) -> np.ndarray:
    return np.asarray(array, np.float64)


def _squares(left: AnyArray, right: AnyArray) -> tuple[float, float]:
    """Sums of the squares of the difference and of the left one."""
    return float(np.sum((_wide(left) - _wide(right)) ** 2)), float(np.sum(_wide(left) ** 2))


def _relative(of_difference: float, of_left: float) -> float:
    if of_difference == 0:
        return 0.0
    return math.sqrt(of_difference / of_left) if of_left else math.inf
