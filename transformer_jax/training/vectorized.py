"""Vectorized updates of several runs in one program: one model many times, with different hyperparameters and keys."""

from collections.abc import Sequence

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import Hyperparameters
from transformer_jax.training.sharding import everywhere, put_batch, put_hyperparameters
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import StepFunction, StepMetrics
from transformer_jax.training.update import Update

AXIS = "training"


class SingleUpdate:
    """The update of a single run, on the mesh of ``update``."""

    def __init__(self, update: Update) -> None:
        self._update = update

    def lower(self, batch: PyTree) -> jax.stages.Lowered:
        """The step for batches like this one, ready to be compiled; shapes will do."""
        return self._update.lower(batch)

    def join(self, states: Sequence[TrainState]) -> TrainState:
        """The state that the step takes, and donates."""
        return states[0]

    def put_hyperparameters(self, hyperparameters: Sequence[Hyperparameters]) -> Hyperparameters:
        """The hyperparameters that the step takes."""
        return put_hyperparameters(hyperparameters[0], self._update.mesh)

    def put_batch(self, batch: PyTree) -> PyTree:
        """The batch that the step takes, from the rows that this process read."""
        return put_batch(batch, self._update.mesh)

    def state_of(self, joined: TrainState, place: int) -> TrainState:
        """The state of one run."""
        return joined

    def metrics_of(self, metrics: StepMetrics, place: int) -> StepMetrics:
        """Metrics of the update of the run at ``place``."""
        return metrics


class VectorizedUpdate:
    """The update of ``count`` runs, each on one device; the runs of one device are vectorized.

    All take the same batch. Their leaves are those of a single run, stacked; where they do not divide over the devices
    the last is repeated.
    """

    def __init__(self, update: Update, count: int, devices: Sequence[jax.Device]) -> None:
        used = min(count, len(devices))
        self._update, self._count = update, -(-count // used) * used
        mesh = jax.make_mesh((used,), (AXIS,), axis_types=(AxisType.Auto,), devices=devices[:used])
        self._mesh, self._apart = mesh, NamedSharding(mesh, P(AXIS))
        step = jax.shard_map(
            _of_each(update.step, devices[0].platform),
            mesh=mesh,
            in_specs=(P(AXIS), P(), P(AXIS)),
            out_specs=P(AXIS),
            check_vma=False,
        )
        self._jitted = jax.jit(
            step,
            in_shardings=(self._apart, everywhere(mesh), self._apart),
            out_shardings=self._apart,
            donate_argnums=0,
            compiler_options=update.options,
        )
        self._index = jax.jit(_index, out_shardings=everywhere(mesh))

    def lower(self, batch: PyTree) -> jax.stages.Lowered:
        """As ``SingleUpdate.lower``."""
        single = self._update.state_shapes, self._update.hyperparameter_shapes
        states, hyperparameters = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self._count, *leaf.shape), leaf.dtype), single
        )
        return self._jitted.lower(states, batch, hyperparameters)

    def join(self, states: Sequence[TrainState]) -> TrainState:
        """As ``SingleUpdate.join``."""
        return jax.tree.map(self._stacked, *states)

    def put_hyperparameters(self, hyperparameters: Sequence[Hyperparameters]) -> Hyperparameters:
        """As ``SingleUpdate.put_hyperparameters``."""
        return jax.tree.map(lambda *each: self._stacked(*map(np.float32, each)), *hyperparameters)

    def put_batch(self, batch: PyTree) -> PyTree:
        """As ``SingleUpdate.put_batch``."""
        return jax.device_put(batch, everywhere(self._mesh))

    def state_of(self, joined: TrainState, place: int) -> TrainState:
        """As ``SingleUpdate.state_of``; a copy, on the mesh of ``update``."""
        return jax.device_put(self._index(joined, place), everywhere(self._update.mesh))

    def metrics_of(self, metrics: StepMetrics, place: int) -> StepMetrics:
        """As ``SingleUpdate.metrics_of``."""
        return _index(metrics, place)

    def _stacked(self, *leaves: jax.Array | np.float32) -> jax.Array:
        filled = [*leaves, *leaves[-1:] * (self._count - len(leaves))]
        return jax.device_put(np.stack(jax.device_get(filled)), self._apart)


def vectorized(update: Update, count: int) -> SingleUpdate | VectorizedUpdate:
    """The update of ``count`` runs, on all available devices."""
    return SingleUpdate(update) if count == 1 else VectorizedUpdate(update, count, jax.devices())


def _of_each(step: StepFunction, platform: str) -> StepFunction:
    """``step`` for stacked states and hyperparameters, and one batch for all."""
    if platform != "cpu":
        return jax.vmap(step, in_axes=(0, None, 0))

    # Cores are busy with one model, and their kernels for batches of matrix products are slower than those for single ones.
    def one_after_another(
        states: TrainState, batch: PyTree, hyperparameters: Hyperparameters
    ) -> tuple[TrainState, StepMetrics]:
        return lax.map(lambda of_one: step(of_one[0], batch, of_one[1]), (states, hyperparameters))

    return one_after_another


def _index(stacked: PyTree, place: Array | int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[place], stacked)
