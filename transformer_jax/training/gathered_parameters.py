"""Parameters for decoding: whole along ``fsdp``, and sent in the type in which the model computes with them."""

import re
from functools import cache

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import PyTree
from transformer_jax.config.plugins import KINDS_WITH_PARAMETERS, registered
from transformer_jax.precision import FLOAT32, POLICIES
from transformer_jax.training.sharding import path_of, state_shardings

# Parameters that are nothing but operands of matrix products, which round them to the model's compute type.
OPERANDS = (
    r"attention/(query|key|value|output)$|(wide|gate|narrow|input|recurrent|combine|readout)_kernel$|projection/table$"
)


def whole_over_fsdp(params: PyTree, mesh: Mesh, compute_dtype: str) -> PyTree:
    """The same parameters whole on every device along ``fsdp``: for a loop over tokens, which would gather them at each.

    ``OPERANDS`` are rounded before they are sent; a model of this ``compute_dtype`` computes the same with them.
    """
    return params if mesh.shape["fsdp"] == 1 else gather_over_fsdp(mesh, compute_dtype)(params)


@cache
def gather_over_fsdp(mesh: Mesh, compute_dtype: str) -> jax.stages.Wrapped:
    """The program of ``whole_over_fsdp``."""

    def gather(params: PyTree) -> PyTree:
        # Both types of an operand are split alike, or the compiler may send the wider one.
        params = lax.with_sharding_constraint(params, state_shardings(params, mesh))
        params = lax.with_sharding_constraint(operands_rounded(params, compute_dtype), state_shardings(params, mesh))
        return lax.with_sharding_constraint(params, decoding_shardings(params, mesh))

    return jax.jit(gather)


def operands_rounded(params: PyTree, compute_dtype: str) -> PyTree:
    """``OPERANDS`` in the type of the products of a model of this ``compute_dtype``, unless a plugin may use them otherwise."""
    # An ensemble may have several.
    dtype = POLICIES.get(compute_dtype, FLOAT32).compute
    if any(registered(kind) for kind in KINDS_WITH_PARAMETERS):
        return params
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf.astype(dtype) if re.search(OPERANDS, path_of(path)) else leaf, params
    )


def decoding_shardings(params: PyTree, mesh: Mesh) -> PyTree:
    """A NamedSharding for every parameter, or its shape, in a loop over tokens: whole along ``fsdp``."""

    def whole(placed: NamedSharding) -> NamedSharding:
        return NamedSharding(mesh, P(*(None if axis == "fsdp" else axis for axis in placed.spec)))

    return jax.tree.map(whole, state_shardings(params, mesh))
