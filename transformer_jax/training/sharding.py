"""Sharding: one mesh of four axes and one ordered table from parameter path to partition."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ConfigError, MeshConfig
from transformer_jax.config.optimization import mesh_sizes
from transformer_jax.layers.mesh_axes import ROW_AXES, is_one_device
from transformer_jax.precision import FLOAT32, POLICIES
from transformer_jax.registry.plugins import may_add_parameters, registered
from transformer_jax.sequence_types import RowParts
from transformer_jax.training.state import TrainState

AXES = ("data", "fsdp", "context", "tensor")

# The first pattern that matches a parameter's path decides. `tensor` splits heads, feed-forward
# width and vocabulary, `fsdp` splits the model width.
SHARDING_RULES: tuple[tuple[str, P], ...] = (
    (r"attention/(query|key|value)$", P("fsdp", "tensor", None)),
    (r"attention/output$", P("tensor", None, "fsdp")),
    (r"(wide|gate)_kernel$", P("fsdp", "tensor")),
    (r"attention/(query|key|value)_bias$", P("tensor", None)),
    (r"(wide_bias|logits_bias)$", P("tensor")),
    (r"narrow_kernel$", P("tensor", "fsdp")),
    (r"(embedding|projection)/table$", P("tensor", "fsdp")),
    (r"(embedding|projection)/bias$", P("tensor", None)),
    (r"positions/table$", P(None, "fsdp")),
    (r"(input_kernel|recurrent_kernel|bridge/kernel)$", P("fsdp", None, "tensor")),
    (r"(input_bias|recurrent_bias|bridge/bias)$", P(None, "tensor")),
    (r"(combine|readout|query|memory|position|feature)_kernel$|score/kernel$", P("fsdp", "tensor")),
    (r"cross_attention/kernel$", P("fsdp", None)),
    (r"(vector|position_vector|cross_attention/bias|score/bias)$", P("tensor")),
    (r"filters$", P(None, None)),
    (r"score/gain$", P()),
    (r"(narrow_bias|output_bias|norm/bias|norm/scale)$", P(None)),
)

# Parameters that are only operands of matrix products, which round them to the compute type.
OPERANDS = (
    r"attention/(query|key|value|output)$|projection/table$|"
    r"(wide|gate|narrow|input|recurrent|combine|readout|latent)_kernel$"
)

BATCH_ROWS = P(ROW_AXES)

StateFunction = Callable[[PyTree, Array], PyTree]
"""(state, rows) to state."""

SumFunction = Callable[[PyTree, PyTree, Array, PyTree], PyTree]
"""(params, rows, key, hyperparameters) to sums over the rows."""


def make_mesh(settings: MeshConfig, devices: list[jax.Device] | None = None) -> Mesh:
    """Return the mesh of ``settings`` over ``devices`` (all by default).

    Raises ConfigError, with meshes that would fit, when the axes do not multiply to the number of
    devices, and for slices of different sizes.
    """
    devices = jax.devices() if devices is None else devices
    sizes = mesh_sizes(settings, len(devices))
    return Mesh(laid_out(devices, [sizes[axis] for axis in AXES]), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def laid_out(devices: Sequence[Any], sizes: Sequence[int]) -> np.ndarray:
    """Return the devices in the shape ``sizes`` of the axes, as their connections suggest.

    Several slices, which a slow network connects, are a hybrid mesh whose first axes run between
    slices as far as they can: gradients then cross the network once an update, where parameters
    would at every layer. Raises ConfigError for slices of different sizes.
    """
    counts = Counter(getattr(device, "slice_index", 0) for device in devices)
    slices = len(counts)
    if len(set(counts.values())) > 1:
        problem = f"slices of {sorted(counts.values())} devices cannot share one"
        raise ConfigError("mesh", problem, "use slices of one size")
    if slices == 1:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    between: list[int] = []
    for size in sizes:
        between.append(math.gcd(size, slices // math.prod(between)))
    within = [size // count for size, count in zip(sizes, between, strict=True)]
    return mesh_utils.create_hybrid_device_mesh(within, between, devices, allow_split_physical_axes=True)


def row_groups(mesh: Mesh) -> int:
    """Return the number of parts that the rows of a batch are split into."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def token_groups(mesh: Mesh) -> tuple[int, int]:
    """Return the numbers of parts of the rows of a batch and of the positions of its sequences."""
    return (1, 1) if is_one_device(mesh) else (row_groups(mesh), mesh.shape["context"])


def partition_of(path: str, shape: tuple[int, ...]) -> P:
    """Return the partition of the parameter at ``path``.

    Raises KeyError when no rule matches: a new kind of parameter needs a line in
    ``SHARDING_RULES``. The kit and plugins register theirs; other parameters of plugins and of
    changes of attention are replicated.
    """
    # Plugins are loaded only where no rule of the package decides.
    for pattern, spec in chain(SHARDING_RULES, registered("sharding").items()):
        if re.search(pattern, path):
            return spec if len(spec) <= len(shape) else P()
    if may_add_parameters() or "attention/changes_" in path:
        return P()
    raise KeyError(f"no sharding rule matches the parameter {path!r}; add one to SHARDING_RULES")


def path_of(key_path: tuple) -> str:
    """Return ``params/encoder_layers_0/self_attention/query`` for the key path of a leaf."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in key_path)


def sharded_shapes(shapes: PyTree, mesh: Mesh) -> PyTree:
    """Return shapes, types and shardings of the leaves of a state."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        state_shardings(shapes, mesh),
    )


def state_shardings(state: PyTree, mesh: Mesh) -> PyTree:
    """Return a NamedSharding for every leaf of a state or of parameters, arrays or shapes.

    A leaf whose path ends with a parameter's, and of its shape, is split as the parameter. Any
    other, such as a statistic of an optimizer, is split as the matrices of its shape if these
    agree, and else replicated. Raises ConfigError when a dimension does not divide over its mesh
    axis.
    """
    params = state.params if isinstance(state, TrainState) else state
    specs: dict[tuple[str, tuple[int, ...]], P] = {}
    of_shape: dict[tuple[int, ...], set[P]] = {}
    for key_path, leaf in jax.tree_util.tree_leaves_with_path(params):
        path = path_of(key_path)
        specs[path, leaf.shape] = partition_of(path, leaf.shape)
        of_shape.setdefault(leaf.shape, set()).add(specs[path, leaf.shape])

    def spec_of(path: str, shape: tuple[int, ...]) -> P:
        ends = [path, *(path[slash.end() :] for slash in re.finditer("/", path))]
        if matches := [specs[end, shape] for end in ends if (end, shape) in specs]:
            return matches[0]
        same = of_shape.get(shape, set())
        return next(iter(same)) if len(same) == 1 and len(shape) > 1 else P()

    def sharding(key_path: tuple, leaf: jax.Array | jax.ShapeDtypeStruct) -> NamedSharding:
        path = path_of(key_path)
        # A dimension of 1 stays whole, and so do key heads that several devices share.
        shared = "tensor" if re.search(r"attention/(key|value)$", path) else ""
        spec = P(
            *(
                None if size == 1 or (axis == shared and size % mesh.shape[axis]) else axis
                for size, axis in zip(leaf.shape, spec_of(path, leaf.shape), strict=False)
            )
        )
        for size, axis in zip(leaf.shape, spec, strict=False):
            if axis and size % mesh.shape[axis]:
                problem = f"{mesh.shape[axis]} does not divide a dimension of {size} in {path} {leaf.shape}"
                raise ConfigError(f"mesh.{axis}", problem, f"use a {axis} axis that does, or another size")
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(sharding, state)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of rows over ``data`` and ``fsdp``."""
    return NamedSharding(mesh, BATCH_ROWS)


def psum_over_rows(function: SumFunction, mesh: Mesh) -> SumFunction:
    """Run ``function`` under ``shard_map`` over the rows, followed by a psum of its results.

    For models that loop over time: parameters are gathered once and gradients reduced once, where
    the compiler would do both at every step. Random numbers depend on a row's index in the batch
    (``layers.mesh_axes``), as on one device. Nothing is split over ``tensor``.
    """

    def on_local_rows(params: PyTree, rows: PyTree, key: Array, hyperparameters: PyTree) -> PyTree:
        return lax.psum(function(params, rows, key, hyperparameters), ROW_AXES)

    specs = P(), BATCH_ROWS, P(), P()
    of_all = jax.shard_map(on_local_rows, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    return lambda *arguments: function(*arguments) if is_one_device(mesh) else of_all(*arguments)


def shard_map_rows(mesh: Mesh) -> Callable[[StateFunction], StateFunction]:
    """Return a decorator that runs a function under ``shard_map`` over the rows of its state.

    Scalars are replicated. The compiler alone would all-gather the logits for ``top_k``. If a
    vocabulary is split over ``tensor`` that costs less, and the function is returned unchanged.
    """

    def split(function: StateFunction) -> StateFunction:
        def run(state: PyTree, rows: Array) -> PyTree:
            specs = jax.tree.map(lambda leaf: BATCH_ROWS if leaf.ndim else P(), state)
            over_rows = partial(jax.shard_map, function, mesh=mesh, axis_names=set(ROW_AXES), check_vma=False)
            return over_rows(in_specs=(specs, BATCH_ROWS), out_specs=specs)(state, rows)

        return run

    return split if mesh.size > 1 and mesh.shape["tensor"] == 1 else lambda function: function


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device has whole."""
    return NamedSharding(mesh, P())


@cache
def parts_of_rows(mesh: Mesh) -> RowParts:
    """Return the parts of the rows of a batch that are on devices of this process.

    Processes that split only parameters or positions between them (``tensor``, ``context``) hold
    the same. On a torus the parts of a process need not be adjacent.
    """
    groups = row_groups(mesh)
    parts = batch_sharding(mesh).addressable_devices_indices_map((groups,))
    return RowParts(tuple(sorted({part[0].start or 0 for part in parts.values() if part})), groups)


def put_batch(batch: PyTree, mesh: Mesh) -> PyTree:
    """Return global arrays from the rows that this process read, its ``parts_of_rows``."""
    sharding = batch_sharding(mesh)
    here, groups = parts_of_rows(mesh)

    def put(rows: AnyArray) -> Array:
        shape = (len(rows) // len(here) * groups, *rows.shape[1:])
        return jax.make_array_from_process_local_data(sharding, np.asarray(rows), shape)

    return jax.tree.map(put, batch)


def put_hyperparameters(hyperparameters: PyTree, mesh: Mesh) -> PyTree:
    """Return float32 scalars, replicated on every device."""
    scalars = jax.tree.map(np.float32, hyperparameters)
    return jax.tree.map(lambda scalar: jax.make_array_from_callback((), replicated(mesh), lambda _: scalar), scalars)


def put_rows(batch: PyTree, mesh: Mesh) -> PyTree:
    """Return global arrays from all rows, which every process has."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(lambda rows: jax.make_array_from_callback(rows.shape, sharding, rows.__getitem__), batch)


def unshard_fsdp(params: PyTree, mesh: Mesh, compute_dtype: str) -> PyTree:
    """Unshard parameters over ``fsdp``: a loop over tokens would all-gather them at every token.

    The results of a model of this ``compute_dtype`` do not change.
    """
    if mesh.shape["fsdp"] == 1:
        return params
    return unshard_program(mesh, gathered_dtype(mesh, compute_dtype))(params)


def gathered_dtype(mesh: Mesh, compute_dtype: str) -> str:
    """Return the type of ``OPERANDS`` in the all-gather: rounded, except on CPUs.

    There a Transformer rounds only its output layer.
    """
    return "float32" if mesh.devices.flat[0].platform == "cpu" else compute_dtype


@cache
def unshard_program(mesh: Mesh, compute_dtype: str) -> jax.stages.Wrapped:
    def gather(params: PyTree) -> PyTree:
        # The rounded operand keeps the sharding, or the compiler may all-gather the wider one.
        params = lax.with_sharding_constraint(params, state_shardings(params, mesh))
        params = lax.with_sharding_constraint(operands_rounded(params, compute_dtype), state_shardings(params, mesh))
        return lax.with_sharding_constraint(params, decoding_shardings(params, mesh))

    return jax.jit(gather)


def operands_rounded(params: PyTree, compute_dtype: str) -> PyTree:
    """Round ``OPERANDS`` to ``compute_dtype``, unless a plugin may use them otherwise."""
    # An ensemble may have several.
    dtype = POLICIES.get(compute_dtype, FLOAT32).compute
    if may_add_parameters():
        return params
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf.astype(dtype) if re.search(OPERANDS, path_of(path)) else leaf, params
    )


def decoding_shardings(params: PyTree, mesh: Mesh) -> PyTree:
    """Return a NamedSharding for every parameter (or shape) in a loop over tokens."""
    return jax.tree.map(
        lambda sharding: NamedSharding(mesh, P(*(None if axis == "fsdp" else axis for axis in sharding.spec))),
        state_shardings(params, mesh),
    )
