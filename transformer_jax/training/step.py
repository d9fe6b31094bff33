"""The training step: a pure function from state and batch to state and metrics."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array, PyTree
from transformer_jax.training.losses import LossFunction, LossSums
from transformer_jax.training.schedules import of_next_update
from transformer_jax.training.state import TrainState
from transformer_jax.training.statistics import Watch, joined_statistics

GradientFunction = Callable[[PyTree, PyTree, Array, PyTree], tuple[PyTree, LossSums]]
"""(params, batch, dropout key, hyperparameters) to the gradient of ``sums.loss``, and the sums."""

MakeOptimizer = Callable[[PyTree, Array | int], optax.GradientTransformation]
"""(hyperparameters, number of updates so far) to the optimizer, whose state has one structure."""

MakeWatch = Callable[[PyTree], Watch]
"""Hyperparameters to statistics and to changes of the updated parameters."""


class StepMetrics(NamedTuple):
    """Metrics of one update. ``finite`` is False when the update was skipped."""

    sums: LossSums
    gradient_norm: Array
    finite: Array


TrainStep = Callable[[TrainState, PyTree, PyTree], tuple[TrainState, StepMetrics]]
"""(state, batch, hyperparameters) to the next state and metrics."""


class UpdateRule(NamedTuple):
    """``init``: parameters to the first optimizer state. ``step``: one update of the state."""

    init: Callable[[PyTree], PyTree]
    step: TrainStep


def make_train_step(
    loss_function: LossFunction,
    optimizer_of: MakeOptimizer,
    accumulation_steps: int = 1,
    mesh: Mesh | None = None,
    make_watch: MakeWatch | None = None,
) -> TrainStep:
    """Return the training step: one optimizer update by the gradient of the mean loss over tokens.

    The mean is (sum of token losses) / (number of tokens in the global batch). The hyperparameters
    of loss and optimizer are an argument, so that runs with different ones run the same program.
    With ``accumulation_steps`` the batch is split into interleaved micro-batches, whose gradients
    are added up one after another. On a ``mesh`` that only splits rows, devices exchange their
    gradients once, after the last. When the loss or the gradient is not finite the parameters and
    the optimizer state stay as they were. ``make_watch``: statistics that the sums return, and
    changes of the updated parameters.
    """

    def loss_and_sums(params: PyTree, rows: PyTree, key: Array, hyperparameters: PyTree) -> tuple[Array, LossSums]:
        sums = loss_function(params, rows, key, hyperparameters)
        return sums.loss, sums

    gradient_of: GradientFunction = jax.grad(loss_and_sums, has_aux=True)
    if accumulation_steps > 1:
        gradient_of = _accumulated(gradient_of, accumulation_steps, make_watch)
        if mesh is not None and mesh.shape["data"] == mesh.size > 1:
            gradient_of = _psum_once(gradient_of, mesh)

    def train_step(state: TrainState, batch: PyTree, hyperparameters: PyTree) -> tuple[TrainState, StepMetrics]:
        hyperparameters = of_next_update(hyperparameters, state.step)
        optimizer = optimizer_of(hyperparameters, state.step)
        gradient, sums = gradient_of(state.params, batch, state.dropout_key(), hyperparameters)
        tokens = jnp.maximum(sums.tokens, 1.0)
        # The norm of the undivided gradient: the divided one is then never written.
        gradient_norm = optax.tree.norm(gradient) / tokens
        gradient = jax.tree.map(lambda leaf: leaf / tokens, gradient)
        watch = make_watch(hyperparameters) if make_watch else None
        statistics = watch.of_update(state.params, gradient, tokens, sums.statistics) if watch else {}
        finite = jnp.isfinite(sums.loss) & jnp.isfinite(gradient_norm)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer_state, state.params)
        params = optax.apply_updates(state.params, updates)
        if watch:
            params, statistics = watch.after_update(params, statistics)
        params, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old),
            (params, optimizer_state),
            (state.params, state.optimizer_state),
        )
        new_state = TrainState(state.step + 1, params, optimizer_state, state.key_data)
        return new_state, StepMetrics(sums._replace(statistics=statistics), gradient_norm, finite)

    return train_step


def _accumulated(
    gradient_of: GradientFunction, num_micro_batches: int, make_watch: MakeWatch | None = None
) -> GradientFunction:
    """Accumulate gradient and sums over micro-batches of the rows of a batch."""

    def accumulated(params: PyTree, batch: PyTree, key: Array, hyperparameters: PyTree) -> tuple[PyTree, LossSums]:
        def add(total: PyTree, micro_batch: tuple[PyTree, Array]) -> tuple[PyTree, LossSums]:
            rows, index = micro_batch
            gradient, sums = gradient_of(params, rows, key_of_micro_batch(key, index), hyperparameters)
            if make_watch:
                statistics = make_watch(hyperparameters).with_micro_batch(sums.statistics, gradient, sums.tokens)
                sums = sums._replace(statistics=statistics)
            return jax.tree.map(jnp.add, total, gradient), sums

        micro_batches = jax.tree.map(lambda rows: interleaved(rows, num_micro_batches), batch)
        zero, numbers = jax.tree.map(jnp.zeros_like, params), jnp.arange(num_micro_batches)
        gradient, stacked = lax.scan(add, zero, (micro_batches, numbers))
        sums = jax.tree.map(partial(jnp.sum, axis=0), stacked._replace(statistics={}))
        return gradient, sums._replace(statistics=joined_statistics(stacked.statistics))

    return accumulated


def _psum_once(gradient_of: GradientFunction, mesh: Mesh) -> GradientFunction:
    """Run ``gradient_of`` under ``shard_map`` over the rows, followed by one psum.

    The compiler alone would reduce the gradient of every micro-batch. It still does if parameters
    are sharded: then no device can hold a whole gradient.
    """

    def of_local_rows(*arguments: PyTree) -> tuple[PyTree, LossSums]:
        gradient, sums = gradient_of(*arguments)
        statistics = joined_statistics(jax.tree.map(lambda ratio: lax.all_gather(ratio, "data"), sums.statistics))
        sums, gradient = lax.psum((sums._replace(statistics={}), gradient), "data")
        return gradient, sums._replace(statistics=statistics)

    specs = P(), P("data"), P(), P()
    return jax.shard_map(of_local_rows, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)


def key_of_micro_batch(key: Array, index: Array | int) -> Array:
    return jax.random.fold_in(key, index)


def interleaved(rows: Array, count: int) -> Array:
    """Reshape [B, ...] to [count, B / count, ...], with rows i, i + count, ... in micro-batch i.

    So no row moves to another device.
    """
    return jnp.swapaxes(rows.reshape(rows.shape[0] // count, count, *rows.shape[1:]), 0, 1)
