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
    """Return a parameter as a matrix W for x Wᵀ, with heads concatenated.

    Vectors and tables are unchanged.
    """
    if HEADS_IN.search(name):
        leaf = leaf.reshape(leaf.shape[0], -1)
    elif HEADS_OUT.search(name):
        leaf = leaf.reshape(-1, leaf.shape[-1])
    elif BIAS_IN.search(name):
        leaf = leaf.reshape(-1)
    return np.ascontiguousarray(leaf.T) if TRANSPOSED.search(name) else leaf


def as_matrices(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: as_matrix(name, np.asarray(leaf)) for name, leaf in arrays.items()}


def as_kernels(matrices: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Invert ``as_matrices`` for parameters of these shapes, exactly."""
    return {
        name: np.ascontiguousarray((leaf.T if TRANSPOSED.search(name) else leaf).reshape(shapes[name]))
        for name, leaf in matrices.items()
    }


def matrix_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of matrices, from shapes of parameters."""
    return {name: as_matrix(name, np.empty(shape, bool)).shape for name, shape in shapes.items()}


def without_zero_biases(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the parameters without attention biases if all of these are zero."""
    biases = {name for name in arrays if ATTENTION_BIAS.search(name)}
    left_out = set() if any(np.any(arrays[name]) for name in biases) else biases
    return {name: leaf for name, leaf in arrays.items() if name not in left_out}


def table_names(config: TransformerConfig) -> tuple[str, str, str]:
    """Return the paths of source table, target table and projection."""
    projection = "projection/embedding/table" if config.logits_bias else "projection/table"
    source, target = "source_embedding/table", "target_embedding/table"
    return {
        "all": (source, source, source),
        "embeddings": (source, source, projection),
        "output": (source, target, target),
        "none": (source, target, projection),
    }[config.tying]


def tables(matrices: Mapping[str, np.ndarray], config: TransformerConfig) -> list[np.ndarray]:
    """Return source table, target table and projection [V, D]. Tied ones are one array."""
    return [matrices[name] for name in table_names(config)]
