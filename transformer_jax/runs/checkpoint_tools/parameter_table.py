"""Parameters as a tree of modules: shapes, types, how many values and bytes."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config.errors import natural_order
from transformer_jax.evaluation.text_table import aligned_table

HEAD = ("parameters", "shape", "type", "numbers", "bytes")


class ParameterCount(NamedTuple):
    """Size of a tree of parameters."""

    arrays: int
    numbers: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.numbers:,} numbers in {self.arrays} arrays, {bytes_text(self.bytes)}"


def parameter_count(shapes: PyTree) -> ParameterCount:
    """Counts the leaves of a tree of arrays, or of their shapes."""
    leaves = jax.tree.leaves(shapes)
    return ParameterCount(
        len(leaves), sum(leaf.size for leaf in leaves), sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    )


def parameter_table(shapes: Mapping[str, Any]) -> str:
    """A line a module with its total, and below it, indented, what it consists of; at the end the total of all."""
    total = parameter_count(shapes)
    last = ("total", "", "", f"{total.numbers:,}", bytes_text(total.bytes))
    return aligned_table([HEAD, *_rows(shapes, 0), last], "lllrr")


def _rows(tree: Mapping[str, Any], depth: int) -> Iterator[tuple[str, ...]]:
    for name in sorted(tree, key=natural_order):
        branch = tree[name]
        numbers, size = f"{parameter_count(branch).numbers:,}", bytes_text(parameter_count(branch).bytes)
        label = "  " * depth + name
        if isinstance(branch, Mapping):
            yield label, "", "", numbers, size
            yield from _rows(branch, depth + 1)
        else:
            shape = " x ".join(map(str, branch.shape)) or "scalar"
            yield label, shape, str(branch.dtype), numbers, size


UNITS = ("KiB", "MiB", "GiB", "TiB")


def bytes_text(count: int) -> str:
    """``512 B``, ``1.5 KiB``, ``20.6 MiB``."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in UNITS:
        size /= 1024
        if size < 1024 or unit == UNITS[-1]:
            break
    return f"{size:.1f} {unit}"
