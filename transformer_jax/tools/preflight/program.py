"""A program compiled for devices that need not be here, with its costs; and the training step of a recipe as one."""

import math
import time
from dataclasses import replace
from typing import NamedTuple

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ExperimentConfig, hyperparameters_of
from transformer_jax.config.optimization import require_rows_divide
from transformer_jax.data.buckets import max_rows, rows_of
from transformer_jax.runtime.hardware import resolve_for_device, settings_on
from transformer_jax.tasks.task import objective_of, task_class
from transformer_jax.tools.preflight.chips import Topology
from transformer_jax.tools.preflight.collectives import Collective
from transformer_jax.tools.preflight.compiled import compile_for
from transformer_jax.tools.preflight.flops import product_flops
from transformer_jax.tools.preflight.interconnect import sent_along
from transformer_jax.tools.preflight.largest_arrays import Buffer
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.state import count_parameters
from transformer_jax.training.update import Update


class Program(NamedTuple):
    """A compiled program, in bytes and operations; memory, operations, traffic and collectives are those of one device.

    ``rows`` and ``width`` are the size of its batch over all devices, ``positions`` the target positions that it computes.
    ``state_bytes`` are the optimizer's, or the state of a search; ``temporaries`` activations, gradients and workspace,
    ``largest`` the largest arrays. ``model_flops`` are the operations of the matrix products, on all devices, where nothing
    is computed twice; ``flops`` those of this program, on each device. ``traffic_kinds`` are the bytes that its instructions
    read and write, by the part of the model that they belong to, ``sent`` those that go along each axis of the interconnect.
    ``fits`` is False when it needs more than there is; when the compiler refused, ``temporaries`` are what it says it would
    need, and traffic and collectives are unknown (empty).
    """

    name: str
    mesh: dict[str, int]
    compute_dtype: str
    rows: int
    width: int
    positions: int
    parameters: int
    parameter_bytes: int
    state_bytes: int
    temporaries: int
    fits: bool
    available: float
    largest: list[Buffer]
    model_flops: int
    flops: float
    traffic_kinds: dict[str, int]
    collectives: list[Collective]
    sent: dict[str, float]
    compile_seconds: float

    @property
    def traffic(self) -> int:
        """Bytes that its instructions read and write."""
        return sum(self.traffic_kinds.values())

    @property
    def total(self) -> int:
        """Bytes on a device."""
        return self.parameter_bytes + self.state_bytes + self.temporaries


def compile_program(config: ExperimentConfig, topology: Topology, length: int = 0) -> Program:
    """Compiles the step of ``config`` for a batch of ``length`` positions on either side (0: as long as batches can be).

    Raises ConfigError when mesh, rows or sizes do not fit each other.
    """
    started = time.perf_counter()
    mesh = make_mesh(config.mesh, topology.devices)
    config = resolve_for_device(config, lambda: settings_on(topology.devices[0]))
    require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, mesh.shape)
    objective = objective_of(config, mesh)
    rule = task_class(config.task).update_rule(objective)
    update = Update(config, objective.loss, objective.init_params, mesh, rule)
    rows, width = batch_size(config, length)
    batch = task_class(config.task).batch_shape(config, rows, width)
    state = update.state_shapes
    parameter_bytes, optimizer_bytes = bytes_on_a_device(state.params), bytes_on_a_device(state.optimizer_state)
    found = compile_for(update.lower(batch), mesh, topology.chip, parameter_bytes + optimizer_bytes)
    needed_flops = model_flops(config, topology, batch)
    # Not the compiler's own count: it takes the body of a loop once.
    flops = product_flops(update.step, state, batch, update.hyperparameter_shapes) / mesh.size
    return Program(
        name="train_step",
        mesh=dict(mesh.shape),
        compute_dtype=config.model.compute_dtype,
        rows=rows,
        width=width,
        positions=rows * width,
        parameters=count_parameters(state.params),
        parameter_bytes=parameter_bytes,
        state_bytes=optimizer_bytes,
        temporaries=found.temporaries,
        fits=found.fits,
        available=found.available,
        largest=found.largest,
        model_flops=needed_flops,
        # A loop of unknown length was counted once.
        flops=max(flops, needed_flops / mesh.size),
        traffic_kinds=found.traffic_kinds,
        collectives=found.collectives,
        sent=sent_along(found.collectives, list(mesh.devices.flat)),
        compile_seconds=time.perf_counter() - started,
    )


def batch_size(config: ExperimentConfig, length: int = 0) -> tuple[int, int]:
    """Rows of a batch of the recipe, over all devices, and positions of a row: ``length``, or as many as there can be."""
    batching = config.batching
    width = length or task_class(config.task).longest_row(config)
    rows = max_rows if getattr(batching, "count", "positions") == "tokens" else rows_of
    return rows(width, batching.tokens_per_update, batching.row_multiple), width


def bytes_on_a_device(tree: PyTree) -> int:
    """Of arrays, or of shapes with shardings."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def model_flops(config: ExperimentConfig, topology: Topology, batch: PyTree) -> int:
    """Operations of a step's matrix products, with every score computed and nothing computed twice."""
    if config.model.has_attention_backend:
        plain = replace(config.model, attention_backend="einsum", rematerialize="none", scan_layers=False)
        config = replace(config, model=plain)
    objective = objective_of(config, make_mesh(config.mesh, topology.devices))
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(objective.init_params, key)
    gradient = jax.grad(lambda params, batch, key: objective.loss(params, batch, key, hyperparameters_of(config)).loss)
    return product_flops(gradient, params, batch, key)
