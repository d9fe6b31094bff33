"""Conversion between parameters of this package and matrices [out, in], the layout of PyTorch."""

import re
from collections.abc import Mapping

import numpy as np

from transformer_jax.config import TransformerConfig

HEADS_IN = re.compile(r"attention/(query|key|value)$")
HEADS_OUT = re.compile(r"attention/output$")
BIAS_IN = re.compile(r"attention/(query|key|value)_bias$")
ATTENTION_BIAS = re.compile(r"attention/(query|key|value|output)_bias$")
TRANSPOSED = re.compile(r"attention/(query|key|value|output)$|_kernel$")


def as_matrix(name: str, leaf: np.ndarray) -> np.ndarray:
    """Return a parameter as a matrix W for x Wᵀ, with heads concatenated; vectors and tables are unchanged."""
    if HEADS_IN.search(name):
        leaf = leaf.reshape(leaf.shape[0], -1)
    elif HEADS_OUT.search(name):
        leaf = leaf.reshape(-1, leaf.shape[-1])
    elif BIAS_IN.search(name):
        leaf = leaf.reshape(-1)
    return np.ascontiguousarray(leaf.T) if TRANSPOSED.search(name) else leaf


def as_matrices(named: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters by path, as matrices."""
    return {name: as_matrix(name, np.asarray(leaf)) for name, leaf in named.items()}


def as_kernels(matrices: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return the exact inverse of ``as_matrices`` for parameters of these shapes."""
    return {
        name: np.ascontiguousarray((leaf.T if TRANSPOSED.search(name) else leaf).reshape(shapes[name]))
        for name, leaf in matrices.items()
    }


def matrix_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the matrices of parameters with these shapes."""
    return {name: as_matrix(name, np.empty(shape, bool)).shape for name, shape in shapes.items()}


def without_zero_biases(named: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters by path, without attention biases if all of them are zero."""
    biases = {name for name in named if ATTENTION_BIAS.search(name)}
    left_out = set() if any(np.any(named[name]) for name in biases) else biases
    return {name: leaf for name, leaf in named.items() if name not in left_out}


def table_names(config: TransformerConfig) -> tuple[str, str, str]:
    """Return the paths of source table, target table and projection."""
    own = "projection/embedding/table" if config.logits_bias else "projection/table"
    source, target = "source_embedding/table", "target_embedding/table"
    return {
        "all": (source, source, source),
        "embeddings": (source, source, own),
        "output": (source, target, target),
        "none": (source, target, own),
    }[config.tying]


def tables(matrices: Mapping[str, np.ndarray], config: TransformerConfig) -> list[np.ndarray]:
    """Source table, target table and projection [V, D]; tied ones are the same array."""
    return [matrices[name] for name in table_names(config)]
