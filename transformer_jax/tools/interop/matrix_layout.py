"""Parameters of this package as matrices [out, in], the layout of PyTorch and of every format here, and back."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from transformer_jax.config import TransformerConfig

HEADS_IN = re.compile(r"attention/(query|key|value)$")
HEADS_OUT = re.compile(r"attention/output$")
BIAS_IN = re.compile(r"attention/(query|key|value)_bias$")
ATTENTION_BIAS = re.compile(r"attention/(query|key|value|output)_bias$")
KERNEL = re.compile(r"_kernel$")


class HeadSizes(NamedTuple):
    """Number of heads, and the sizes of a key and a value."""

    num_heads: int
    key_size: int
    value_size: int


def as_matrices(named: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters by path, heads side by side, products as ``x W^T``; vectors and tables stay as they are."""
    return {name: _as_matrix(name, np.asarray(leaf)) for name, leaf in named.items()}


def as_kernels(matrices: Mapping[str, np.ndarray], sizes: HeadSizes) -> dict[str, np.ndarray]:
    """The inverse of ``as_matrices`` for heads of these sizes; bit for bit."""
    return {name: np.ascontiguousarray(_as_kernel(name, matrix, sizes)) for name, matrix in matrices.items()}


def matrix_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes that parameters of these shapes have as matrices."""
    return {name: _as_matrix(name, np.broadcast_to(False, shape)).shape for name, shape in shapes.items()}


def without_zero_biases(named: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters by path, without the biases of attention where all of these are zero."""
    biases = {name for name in named if ATTENTION_BIAS.search(name)}
    left_out = set() if any(np.any(named[name]) for name in biases) else biases
    return {name: leaf for name, leaf in named.items() if name not in left_out}


def tables(matrices: Mapping[str, np.ndarray], config: TransformerConfig) -> list[np.ndarray]:
    """Source table, target table and projection [V, D]; one that is shared is the same array."""
    return [matrices[name] for name in table_names(config)]


def table_names(config: TransformerConfig) -> tuple[str, str, str]:
    """The paths of source table, target table and projection."""
    own = "projection/embedding/table" if config.logits_bias else "projection/table"
    source, target = "source_embedding/table", "target_embedding/table"
    return {
        "all": (source, source, source),
        "embeddings": (source, source, own),
        "output": (source, target, target),
        "none": (source, target, own),
    }[config.tying]


def _as_matrix(name: str, leaf: np.ndarray) -> np.ndarray:
    if HEADS_IN.search(name):
        return np.ascontiguousarray(leaf.reshape(leaf.shape[0], -1).T)
    if HEADS_OUT.search(name):
        return np.ascontiguousarray(leaf.reshape(-1, leaf.shape[-1]).T)
    if BIAS_IN.search(name):
        return leaf.reshape(-1)
    return np.ascontiguousarray(leaf.T) if KERNEL.search(name) else leaf


def _as_kernel(name: str, matrix: np.ndarray, sizes: HeadSizes) -> np.ndarray:
    if found := HEADS_IN.search(name):
        size = sizes.value_size if found[1] == "value" else sizes.key_size
        return matrix.T.reshape(matrix.shape[1], sizes.num_heads, size)
    if HEADS_OUT.search(name):
        return matrix.T.reshape(sizes.num_heads, sizes.value_size, matrix.shape[0])
    if BIAS_IN.search(name):
        return matrix.reshape(sizes.num_heads, -1)
    return matrix.T if KERNEL.search(name) else matrix
