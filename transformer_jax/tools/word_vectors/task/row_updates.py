"""Sparse updates: gradient steps on a few rows of large tables."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, parts_with
from transformer_jax.training.losses import LossSums
from transformer_jax.training.schedules import make_schedule, of_next_update
from transformer_jax.training.sharding import partition_of, replicated
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import StepMetrics, UpdateRule, interleaved

TablePath = tuple[str, str]
"""The names of a module and of its parameter."""


class Lookup(NamedTuple):
    """Rows ``ids`` of the parameter ``table``."""

    table: TablePath
    ids: AnyArray


Lookups = Callable[[PyTree], Mapping[str, Lookup]]
"""The rows that a block reads, by name."""

RowLoss = Callable[[Mapping[str, Array], PyTree], LossSums]
"""The sums of rows by name and a block. ``sums.loss`` is differentiated with respect to rows."""


def row_update_rule(config: ExperimentConfig, lookups: Lookups, loss: RowLoss, mesh: Mesh) -> UpdateRule:
    """Return an update that takes the blocks of a batch one after another, and adds steps to rows.

    Memory traffic grows with the rows that are read, not with the size of the tables. The rate
    multiplies the sum of gradients over a block, as if its examples had come one by one. Every
    device receives the gradients of all devices and adds them to its rows. After a block whose loss
    is not finite the parameters no longer change. ``optimizer.name`` must be in ``ROW_RULES``.
    """
    init, apply = ROW_RULES[config.optimizer.name]
    blocks_per_update = config.batching.blocks_per_update

    def exchanged(path: TablePath, ids: Array, gradient: Array) -> tuple[Array, Array]:
        if mesh.size == 1:
            return ids, gradient
        # By default the compiler adds the rows of a device to a table of zeros, and all-reduces
        # these tables.
        columns = P(None, *partition_of("/".join(path), gradient.shape)[1:])
        shardings = replicated(mesh), NamedSharding(mesh, columns)
        return lax.with_sharding_constraint((ids, gradient), shardings)

    def train_step(
        state: TrainState, batch: PyTree, hyperparameters: Hyperparameters
    ) -> tuple[TrainState, StepMetrics]:
        hyperparameters = of_next_update(hyperparameters, state.step)
        parts = parts_with(config, hyperparameters)
        rate = make_schedule(config.optimizer.schedule, hyperparameters, config.model.d_model, parts)(state.step + 1)

        def sums_of(rows: Mapping[str, Array], block: PyTree) -> tuple[Array, LossSums]:
            with jax.named_scope("row_loss"):
                sums = loss(rows, block)
            return sums.loss, sums

        def take_block(carry: tuple, block: PyTree) -> tuple[tuple, None]:
            params, memory, sums, squares, finite = carry
            by_name = lookups(block)
            rows = {name: _table(params, lookup.table)[lookup.ids] for name, lookup in by_name.items()}
            gradients, block_sums = jax.grad(sums_of, has_aux=True)(rows, block)
            square = sum((jnp.vdot(leaf, leaf) for leaf in gradients.values()), jnp.zeros((), jnp.float32))
            finite &= jnp.isfinite(block_sums.loss) & jnp.isfinite(square)
            for path, steps in _by_table(by_name, gradients).items():
                ids, gradient = exchanged(path, *steps)
                params, memory = apply(params, memory, path, ids, jnp.where(finite, gradient, 0.0), rate)
            return (params, memory, sums + block_sums, squares + square, finite), None

        zero = jnp.zeros((), jnp.float32)
        first = state.params, state.optimizer_state, LossSums.zero(), zero, jnp.asarray(True)
        blocks = jax.tree.map(lambda rows: interleaved(rows, blocks_per_update), batch)
        (params, memory, sums, squares, finite), _ = lax.scan(take_block, first, blocks)
        metrics = StepMetrics(sums, jnp.sqrt(squares) / jnp.maximum(sums.tokens, 1.0), finite)
        return TrainState(state.step + 1, params, memory, state.key_data), metrics

    return UpdateRule(init, train_step)


def _by_table(by_name: Mapping[str, Lookup], gradients: Mapping[str, Array]) -> dict[TablePath, tuple[Array, ...]]:
    """Join ids [N] and gradients [N, D] by table for one scatter.

    Between two scatters XLA copies the table.
    """
    joined: dict[TablePath, list[tuple[Array, Array]]] = {}
    for name, lookup in by_name.items():
        rows = gradients[name].reshape(-1, gradients[name].shape[-1])
        joined.setdefault(lookup.table, []).append((jnp.ravel(lookup.ids), rows))
    return {path: tuple(map(jnp.concatenate, zip(*parts, strict=True))) for path, parts in joined.items()}


def _sgd(
    params: PyTree, memory: PyTree, path: TablePath, ids: Array, gradient: Array, rate: Array
) -> tuple[PyTree, PyTree]:
    """Subtract the rate times the gradient. Repeated rows add up."""
    return _with_table(params, path, _added(_table(params, path), ids, -rate * gradient)), memory


def _adagrad(
    params: PyTree, memory: PyTree, path: TablePath, ids: Array, gradient: Array, rate: Array
) -> tuple[PyTree, PyTree]:
    """Take a step of AdaGrad (Duchi et al. 2011), with squares of the rate times the gradient.

    As in GloVe's program, squares start at 1. All occurrences of a row add their squares before any
    step is divided. GloVe's program divides a step before it adds the square.
    """
    scaled = rate * gradient
    squares = _added(_table(memory, path), ids, scaled**2)
    table = _added(_table(params, path), ids, -scaled * lax.rsqrt(squares[ids]))
    return _with_table(params, path, table), _with_table(memory, path, squares)


ROW_RULES = {
    "sgd": (lambda params: {}, _sgd),
    "adagrad": (lambda params: jax.tree.map(jnp.ones_like, params), _adagrad),
}
"""The initial state, and the update of rows by a gradient, by ``optimizer.name``."""


def _added(table: Array, ids: Array, rows: Array) -> Array:
    """Add rows to a table, without JAX's check of the ids: XLA drops ids beyond the table."""
    return table.at[ids].add(rows, mode="promise_in_bounds")


def _table(tree: PyTree, path: TablePath) -> Array:
    module, name = path
    return tree[module][name]


def _with_table(tree: PyTree, path: TablePath, table: Array) -> PyTree:
    module, name = path
    return tree | {module: tree[module] | {name: table}}
