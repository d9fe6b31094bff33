"""Programs compiled for absent devices: the training step of a recipe, costs, roofline."""

import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
from jax.extend import core
from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import ExperimentConfig, hyperparameters_of
from transformer_jax.config.optimization import require_rows_divide
from transformer_jax.data.buckets import max_rows, rows_of
from transformer_jax.runtime.hardware import resolve_for_device, settings_on
from transformer_jax.tasks.task import objective_of, task_that
from transformer_jax.tools.preflight.chips import Chip, Topology
from transformer_jax.tools.preflight.collectives import Collective, collectives_of, sent_along
from transformer_jax.tools.preflight.largest_arrays import Buffer, largest_arrays, needed_and_available
from transformer_jax.tools.preflight.memory_traffic import traffic_by_kind
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.state import count_parameters, param_shapes
from transformer_jax.training.update import Update


@runtime_checkable
class HasBatchShapes(Protocol):
    """A task whose training step can be compiled without data."""

    @staticmethod
    def batch_shape(config: ExperimentConfig, rows: int, length: int) -> PyTree:
        """Return the shape of a batch of ``rows`` rows of ``length`` positions."""

    @staticmethod
    def longest_row(config: ExperimentConfig) -> int:
        """Return the maximum length of a row of a batch."""


class Program(NamedTuple):
    """Costs of a compiled program in bytes and FLOPs, on one device by default.

    Attributes:
        rows: Rows of the batch over all devices.
        positions: Target positions of the batch.
        state_bytes: Optimizer, or state of a search.
        temporaries: Activations, gradients and workspace, or the message of a compiler that refused
            the program. Then traffic and collectives are empty.
        fits: Whether ``available`` memory suffices.
        model_flops: Matrix products on all devices without recomputation.
        flops: Matrix products of this program.
        traffic_kinds: Bytes read and written, by part of the model.
        sent: Bytes along each axis of the interconnect.
        training_bytes: The training state that a run holds beside a search when it validates.
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
    training_bytes: int = 0

    @property
    def traffic(self) -> int:
        """Bytes that all instructions read and write."""
        return sum(self.traffic_kinds.values())

    @property
    def total(self) -> int:
        """Bytes of memory on a device."""
        return self.parameter_bytes + self.state_bytes + self.temporaries


class Compiled(NamedTuple):
    """Results of the compiler, with fields of ``Program``."""

    temporaries: int
    available: float
    fits: bool
    largest: list[Buffer]
    traffic_kinds: dict[str, int]
    collectives: list[Collective]


def compile_program(config: ExperimentConfig, topology: Topology, length: int = 0) -> Program:
    """Compile the training step for rows of ``length`` positions on either side (0: the maximum).

    Raises ConfigError if mesh, rows and sizes do not fit.
    """
    started = time.perf_counter()
    mesh = make_mesh(config.mesh, topology.devices)
    config = resolve_for_device(config, lambda: settings_on(topology.devices[0]))
    require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, mesh.shape)
    objective = objective_of(config, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh, objective.update_rule)
    rows, width = batch_size(config, length)
    batch = _task(config).batch_shape(config, rows, width)
    state = update.state_shapes
    parameter_bytes, optimizer_bytes = bytes_on_a_device(state.params), bytes_on_a_device(state.optimizer_state)
    compiled = compile_for(update.lower(batch), mesh, topology.chip, parameter_bytes + optimizer_bytes)
    needed_flops = model_flops(config, topology, batch)
    # The compiler would count the body of every loop once.
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
        model_flops=needed_flops,
        flops=max(flops, needed_flops / mesh.size),
        sent=sent_along(compiled.collectives, list(mesh.devices.flat)),
        compile_seconds=time.perf_counter() - started,
        **compiled._asdict(),
    )


def compile_for(lowered: jax.stages.Lowered, mesh: Mesh, chip: Chip | None, argument_bytes: int) -> Compiled:
    """Compile for the devices of ``mesh``. ``fits`` includes the arguments."""
    compiled, text = _compiled_and_text(lowered, mesh.devices.flat[0].platform)
    if isinstance(compiled, jax.errors.JaxRuntimeError):
        if limits := needed_and_available(str(compiled), argument_bytes):
            return Compiled(*limits, False, largest_arrays(text), {}, [])
        raise compiled
    memory: Any = compiled.memory_analysis()
    temporaries, available = memory.temp_size_in_bytes, chip.memory if chip else math.inf
    fits = argument_bytes + temporaries <= available
    collectives = collectives_of(text, mesh.size)
    return Compiled(temporaries, available, fits, largest_arrays(text), traffic_by_kind(text), collectives)


def _compiled_and_text(
    lowered: jax.stages.Lowered, platform: str
) -> tuple[jax.stages.Compiled | jax.errors.JaxRuntimeError, str]:
    """Return the compiled program, or the error of the TPU compiler, and the text of the program.

    The TPU compiler may use operations that JAX cannot read back. It writes the text to a file,
    usually also if it refuses the program.
    """
    if platform != "tpu":
        compiled = lowered.compile()
        return compiled, compiled.as_text() or ""
    with TemporaryDirectory() as folder:
        result: jax.stages.Compiled | jax.errors.JaxRuntimeError
        try:
            result = lowered.compile({"xla_dump_to": folder, "xla_dump_hlo_as_text": True})
        except jax.errors.JaxRuntimeError as error:
            result = error
        written = Path(folder).glob("*.after_optimizations.txt")
        return result, "".join(file.read_text(encoding="utf-8") for file in written)


def _task(config: ExperimentConfig) -> HasBatchShapes:
    task: HasBatchShapes = task_that(
        HasBatchShapes, config, "task", f"{config.task} has no shape of batches without data"
    )
    return task


def batch_size(config: ExperimentConfig, length: int = 0) -> tuple[int, int]:
    """Return rows of a batch over all devices, and positions of a row (0: the maximum)."""
    batching = config.batching
    width = length or _task(config).longest_row(config)
    rows = max_rows if getattr(batching, "count", "positions") == "tokens" else rows_of
    return rows(width, batching.tokens_per_update, batching.row_multiple), width


def bytes_on_a_device(tree: PyTree) -> int:
    """Return the bytes of arrays, or of shapes with shardings, on one device."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def without_recomputation(config: ExperimentConfig) -> ExperimentConfig:
    """Return the model with every matrix product once in its jaxpr."""
    if not config.model.has_attention_backend:
        return config
    plain = replace(config.model, attention_backend="einsum", rematerialize="none", scan_layers=False)
    return replace(config, model=plain)


def model_flops(config: ExperimentConfig, topology: Topology, batch: PyTree) -> int:
    """Return the FLOPs of a step's products, with all scores and without recomputation."""
    config = without_recomputation(config)
    objective = objective_of(config, make_mesh(config.mesh, topology.devices))
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = param_shapes(objective.init_params)
    gradient = jax.grad(lambda params, batch, key: objective.loss(params, batch, key, hyperparameters_of(config)).loss)
    return product_flops(gradient, params, batch, key)


def product_flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the FLOPs of products and convolutions of a call, two per multiply-add.

    Arguments may be shapes. A loop of unknown length counts once.
    """
    return _flops_of(jax.make_jaxpr(function)(*arguments).jaxpr)


def _flops_of(jaxpr: core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        total += _product_flops(equation)
        inner = [*map(_flops_of, _inner(equation))]
        if equation.primitive.name == "cond":
            # One branch runs. In the scope once_in_10 the largest runs in one of 10 calls.
            scope = re.search(r"once_in_(\d+)", str(equation.source_info.name_stack))
            every = int(scope[1]) if scope else 1
            total += (max(inner) + (every - 1) * min(inner)) // every
        else:
            # A loop, the grid of a kernel, or all devices of a mesh run the inner jaxpr.
            grid = getattr(equation.params.get("grid_mapping"), "grid", ())
            devices = getattr(equation.params.get("mesh"), "size", 1)
            total += equation.params.get("length", 1) * math.prod(grid) * devices * sum(inner)
    return total


def _product_flops(equation: core.JaxprEqn) -> int:
    """Return the FLOPs of a matrix product or convolution, padding included.

    Other equations have 0. Warns of an unknown product.
    """
    name, params = equation.primitive.name, equation.params
    if name in ("dot_general", "ragged_dot_general"):
        # An element of the left is multiplied by the free axes of the right, and a row of a group
        # by the matrix of its group.
        ragged = params.get("ragged_dot_dimension_numbers")
        (_, contracted), (_, batched) = ragged.dot_dimension_numbers if ragged else params["dimension_numbers"]
        left, right, *_ = (_shape(variable) for variable in equation.invars)
        shared = {*contracted, *batched, *(ragged.rhs_group_dimensions if ragged else ())}
        return 2 * math.prod(left) * math.prod(size for axis, size in enumerate(right) if axis not in shared)
    if name == "conv_general_dilated":
        kernel, inserted = _shape(equation.invars[1]), math.prod(params["lhs_dilation"])
        outputs = kernel[params["dimension_numbers"].rhs_spec[0]]
        return 2 * math.prod(_shape(equation.outvars[0])) * math.prod(kernel) // (outputs * inserted)
    if name.endswith(("dot", "dot_general", "matmul")):
        warnings.warn(f"the FLOPs of {name} are not counted", stacklevel=1)
    return 0


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _inner(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """Yield the jaxprs that an equation runs, without custom gradients."""
    for name, value in equation.params.items():
        if name in ("fwd_jaxpr_thunk", "bwd"):
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            # A closed jaxpr holds one. Newer releases of JAX have one type for both.
            inner = getattr(item, "jaxpr", item)
            if isinstance(inner, core.Jaxpr):
                yield inner


class Roofline(NamedTuple):
    """Estimated seconds per step that resources are busy at full speed (Williams et al. 2009).

    Attributes:
        compute: Matrix products, recomputation included.
        memory: Reads and writes of all instructions.
        interconnect: Transfers along the busiest axis, in both directions of a closed torus. A
            collective is spread over all axes along which its members differ. Axes of GPUs are
            NVLink and the network, which also connects TPU slices.
    """

    compute: float
    memory: float
    interconnect: float

    @property
    def seconds(self) -> float:
        """Estimated time of a step: the maximum of the three, as if they overlapped perfectly."""
        return max(self)

    @property
    def bound(self) -> str:
        """The resource that is busy for the longest time."""
        return max(zip(self, self._fields, strict=True))[1]


def roofline(program: Program, chip: Chip) -> Roofline:
    """Return the bounds of a step. Axes of unknown speed are left out."""
    return Roofline(
        compute=program.flops / chip.peak(program.compute_dtype),
        memory=program.traffic / chip.memory_bandwidth,
        interconnect=max((program.sent.get(axis, 0.0) / link for axis, link in chip.links.items()), default=0.0),
    )


def model_flops_utilization(program: Program, chip: Chip) -> float:
    """Return the MFU, the share of peak in ``model_flops``, in a step of the roofline's time."""
    useful = program.model_flops / math.prod(program.mesh.values()) / chip.peak(program.compute_dtype)
    return useful / roofline(program, chip).seconds
