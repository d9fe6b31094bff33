"""Decoding of a recipe, a step or a whole search, compiled for absent devices."""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig
from transformer_jax.decoding.program import DecodingProgram
from transformer_jax.runtime.hardware import resolve_for_device, settings_on
from transformer_jax.tasks.task import objective_of, task_that
from transformer_jax.tools.preflight.chips import Chip, Topology
from transformer_jax.tools.preflight.collectives import sent_along
from transformer_jax.tools.preflight.compiled_program import (
    Compiled,
    Program,
    bytes_on_a_device,
    compile_for,
    product_flops,
)
from transformer_jax.training.sharding import (
    batch_sharding,
    decoding_shardings,
    gathered_dtype,
    make_mesh,
    operands_rounded,
    replicated,
)
from transformer_jax.training.state import count_parameters, param_shapes
from transformer_jax.training.update import Update


@runtime_checkable
class Decodes(Protocol):
    """A task whose model decodes."""

    @staticmethod
    def decoding(config: ExperimentConfig, objective: Any, length: int, mesh: Mesh) -> DecodingProgram:
        """Return the search over a full batch of inputs of ``length`` (0: the longest)."""


def compile_decoding(config: ExperimentConfig, topology: Topology, length: int, is_search: bool) -> Program:
    """Compile the last step of a search over a full batch of inputs, or the whole search.

    The whole search encodes the inputs and runs every step, in arrays that grow with the capacity.
    No row ends early. ``length`` 0 is the maximum. Raises ConfigError if mesh and sizes do not fit,
    or the task does not decode.
    """
    started = time.perf_counter()
    mesh = make_mesh(config.mesh, topology.devices)
    config = resolve_for_device(config, lambda: settings_on(topology.devices[0]))
    objective = objective_of(config, mesh)
    task: Decodes = task_that(Decodes, config, "--program", f"{config.task} decodes nothing")
    decoding = task.decoding(config, objective, length, mesh)
    compute_dtype = getattr(objective, "evaluation_dtype", config.model.compute_dtype)
    parameters = _parameters(objective.init_params, mesh, compute_dtype)
    parts = _compiled_parts(decoding, parameters, mesh, topology.chip, is_search)
    update = Update(config, objective.loss, objective.init_params, mesh, objective.update_rule)
    state = update.state_shapes
    if mesh.shape["fsdp"] == 1 and config.optimizer.averaging == "none":
        # The search reads the parameters of the state.
        state = state._replace(params=())
    largest = max(parts, key=lambda part: part.state_bytes + part.compiled.temporaries)
    collectives = [
        collective._replace(times=part.times * collective.times)
        for part in parts
        for collective in part.compiled.collectives
    ]
    flops = sum(part.times * part.flops for part in parts)
    traffic: Counter[str] = Counter()
    for part in parts:
        traffic.update({kind: part.times * moved for kind, moved in part.compiled.traffic_kinds.items() if part.times})
    return Program(
        name="search" if is_search else "decode_step",
        mesh=dict(mesh.shape),
        compute_dtype=compute_dtype,
        rows=decoding.rows,
        width=decoding.width,
        positions=decoding.rows * (decoding.tokens if is_search else 1),
        parameters=count_parameters(parameters),
        parameter_bytes=bytes_on_a_device(parameters),
        state_bytes=largest.state_bytes,
        temporaries=largest.compiled.temporaries,
        fits=all(part.compiled.fits for part in parts),
        available=largest.compiled.available,
        largest=largest.compiled.largest,
        model_flops=flops,
        flops=flops / mesh.size,
        traffic_kinds=dict(traffic.most_common()),
        collectives=collectives,
        sent=sent_along(collectives, list(mesh.devices.flat)),
        compile_seconds=time.perf_counter() - started,
        training_bytes=bytes_on_a_device(state),
    )


class _Part(NamedTuple):
    """A program of a search, state bytes on a device, number of runs, FLOPs on all devices."""

    compiled: Compiled
    state_bytes: int
    times: int
    flops: int


def _compiled_parts(
    decoding: DecodingProgram, parameters: PyTree, mesh: Mesh, chip: Chip | None, is_search: bool
) -> list[_Part]:
    """Compile the programs of the search, up to the first that does not fit."""
    capacities = decoding.capacities if is_search else [(decoding.capacities[-1][0], 1)]
    inputs = jax.ShapeDtypeStruct(decoding.inputs.shape, decoding.inputs.dtype, sharding=batch_sharding(mesh))
    parameter_bytes = bytes_on_a_device(parameters)

    def start_with(capacity: int) -> Callable[[PyTree, PyTree], PyTree]:
        return lambda parameters, inputs: decoding.start(parameters, inputs, capacity)

    start = start_with(capacities[0][0])
    # As in a search, rows stay on their devices, so the state has one sharding.
    shardings = jax.tree.map(
        lambda leaf: batch_sharding(mesh) if leaf.ndim else replicated(mesh), jax.eval_shape(start, parameters, inputs)
    )

    def state_of(capacity: int) -> PyTree:
        shapes = jax.eval_shape(start_with(capacity), parameters, inputs)
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes, shardings
        )

    started, state_bytes = jax.jit(start, out_shardings=shardings), bytes_on_a_device(state_of(capacities[0][0]))
    compiled = compile_for(started.lower(parameters, inputs), mesh, chip, parameter_bytes + state_bytes)
    parts = [_Part(compiled, state_bytes, int(is_search), product_flops(start, parameters, inputs))]
    step = jax.jit(decoding.step, donate_argnums=1, out_shardings=shardings)
    for capacity, tokens in capacities:
        if not parts[-1].compiled.fits:
            break
        state = state_of(capacity)
        state_bytes = bytes_on_a_device(state)
        compiled = compile_for(step.lower(parameters, state), mesh, chip, parameter_bytes + state_bytes)
        parts.append(_Part(compiled, state_bytes, tokens, product_flops(decoding.step, parameters, state)))
    return parts


def _parameters(init_params: Callable[[Array], PyTree], mesh: Mesh, compute_dtype: str) -> PyTree:
    shapes = param_shapes(init_params)
    if mesh.shape["fsdp"] > 1:
        shapes = jax.eval_shape(partial(operands_rounded, compute_dtype=gathered_dtype(mesh, compute_dtype)), shapes)
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        decoding_shardings(shapes, mesh),
    )
