"""Comparison of two trees of arrays that should be equal up to rounding."""

import jax
import numpy as np

from transformer_jax.array_types import PyTree

ROUNDING = 2e-4
"""The largest difference by sums in another order, relative to the largest entry of an array."""
# Arrays with smaller entries, relative to the largest of the tree, may be rounding of zero, as
# gradients of key biases are.
SMALL = 1e-3


class Broken(Exception):
    """A property does not hold. ``line`` is the ``FILE, line N`` that is to blame."""

    def __init__(self, message: str, line: str = "") -> None:
        super().__init__(message)
        self.line = line


def require_near(actual: PyTree, expected: PyTree, name: str = "", tolerance: float = ROUNDING) -> str:
    """Return the largest relative difference as text. Raise Broken if it exceeds ``tolerance``."""
    worst, path_of_worst = 0.0, ""
    pairs = zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True)
    largest = max((float(np.abs(other).max(initial=0.0)) for other in jax.tree.leaves(expected)), default=0.0)
    for path, leaf, other in ((path, np.asarray(leaf, np.float64), np.asarray(other)) for (path, leaf), other in pairs):
        scale = max(float(np.abs(other).max(initial=0.0)), SMALL * largest, 1e-6)
        difference = float(np.abs(leaf - other).max(initial=0.0)) / scale
        # A comparison with NaN is false, so it is asked this way round.
        if not difference <= worst:
            worst, path_of_worst = difference, jax.tree_util.keystr(path, simple=True, separator="/")
    if not worst <= tolerance:
        name = " ".join(filter(None, (name, path_of_worst)))
        raise Broken(f"{name + ': ' if name else ''}differs by {worst:.1e} of its largest entry")
    return f"{worst:.0e}"


def require_same_bits(actual: PyTree, expected: PyTree) -> str:
    """Raise Broken with the path of the first array that is not equal to the bit."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True)
    for (path, leaf), other in pairs:
        if np.asarray(leaf).tobytes() != np.asarray(other).tobytes():
            raise Broken(f"{jax.tree_util.keystr(path, simple=True, separator='/')} differs")
    return "same bits"
