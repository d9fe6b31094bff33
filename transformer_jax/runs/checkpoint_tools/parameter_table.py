"""Parameters as a tree of modules: shapes, types, how many numbers and bytes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.evaluation.text_table import aligned_table
from transformer_jax.runs.checkpoint_tools.byte_counts import bytes_text

HEAD = ("parameters", "shape", "type", "numbers", "bytes")


class Amount(NamedTuple):
    """How much a tree holds."""

    arrays: int
    numbers: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.numbers:,} numbers in {self.arrays} arrays, {bytes_text(self.bytes)}"


def amount_of(shapes: PyTree) -> Amount:
    """Counts the leaves of a tree of arrays, or of their shapes."""
    leaves = jax.tree.leaves(shapes)
    return Amount(
        len(leaves), sum(leaf.size for leaf in leaves), sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    )


def parameter_table(shapes: Mapping[str, Any]) -> str:
    """A line a module with its total, and below it, indented, what it consists of; at the end the total of all."""
    total = amount_of(shapes)
    last = ("total", "", "", f"{total.numbers:,}", bytes_text(total.bytes))
    return aligned_table([HEAD, *_rows(shapes, 0), last], "lllrr")


def _rows(tree: Mapping[str, Any], depth: int) -> Iterator[tuple[str, ...]]:
    for name in sorted(tree, key=_natural):
        branch = tree[name]
        numbers, size = f"{amount_of(branch).numbers:,}", bytes_text(amount_of(branch).bytes)
        label = "  " * depth + name
        if isinstance(branch, Mapping):
            yield label, "", "", numbers, size
            yield from _rows(branch, depth + 1)
        else:
            shape = " x ".join(map(str, branch.shape)) or "scalar"
            yield label, shape, str(branch.dtype), numbers, size


def _natural(name: str) -> list[tuple[int, str]]:
    """``layers_2`` before ``layers_10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
