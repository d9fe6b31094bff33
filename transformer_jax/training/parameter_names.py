"""Parameters by their paths."""

from collections.abc import Sequence
from typing import Any

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.training.sharding import path_of

NAMES_SHOWN = 8


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree under their paths: ``{"encoder_layers_0/self_attention/query": ...}``."""
    return {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def some_of(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    rest = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
