"""Properties of an update: on every mesh, compiled or not, resumed, and where a batch is not finite.

Each takes a ``Trial`` and the length of its sentences, returns a few words, and raises ``Broken`` where it does not hold.
"""

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import MeshConfig, hyperparameters_of
from transformer_jax.tools.conform.comparison import Broken, require_near, require_same_bits
from transformer_jax.tools.conform.trials import Trial, sentences, single_mesh, updated
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import put_hyperparameters, put_rows
from transformer_jax.training.state import TrainState
from transformer_jax.training.update import Update

ROWS = 8
MESHES = {
    "data=2, fsdp=2": MeshConfig(data=2, fsdp=2),
    "fsdp=2, tensor=2": MeshConfig(data=1, fsdp=2, tensor=2),
    "tensor=2, context=2": MeshConfig(data=1, tensor=2, context=2),
    "data=2, context=2": MeshConfig(data=2, context=2),
}


def jit_equals_eager(trial: Trial, length: int) -> str:
    """Loss and gradient without a compiler are the compiled ones."""
    rows = trial.rows(sentences(2, length))

    def loss(params: jax.Array) -> jax.Array:
        return trial.loss_sums(params, rows).loss

    expected = jax.jit(jax.value_and_grad(loss))(trial.params)
    with jax.disable_jit():
        return require_near(jax.value_and_grad(loss)(trial.params), expected)


def update_equals_eager(trial: Trial, length: int) -> str:
    """An update without a compiler is the compiled one."""
    update, rows = trial.update(), put_rows(trial.rows(sentences(2, length)), single_mesh())
    expected = updated(update, rows, trial.config, 1)
    state, hyperparameters = update.initial_state(0), put_hyperparameters(hyperparameters_of(trial.config), update.mesh)
    with jax.disable_jit():
        found, _ = update.step(state, rows, hyperparameters)
    return require_near(_parameters(update, found), _parameters(update, expected), tolerance=1e-3)


def meshes_agree(trial: Trial, length: int) -> str:
    """Two updates are the same on one device and on meshes that split data, parameters, heads, positions."""
    # Positions divide over the axis that splits them.
    rows = trial.rows(sentences(ROWS, length + length % 2))
    expected = _after_two(trial, trial.update(), rows)
    worst = []
    for name, mesh in MESHES.items():
        if math.prod(mesh.sizes.values()) > jax.device_count():
            continue
        if mesh.context * mesh.tensor > 1 and trial.config.model.is_recurrent:
            continue
        found = _after_two(trial, trial.update(mesh), rows)
        worst.append(require_near(found, expected, name, tolerance=1e-3))
    return f"{len(worst)} meshes, {max(worst, key=float)}" if worst else "one device"


def resumed_to_the_bit(trial: Trial, length: int) -> str:
    """Two updates, a checkpoint, and two updates of the restored state are four updates."""
    update, rows = trial.update(), trial.rows(sentences(ROWS, length))
    half = updated(update, rows, trial.config, 2)
    with TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        try:
            checkpoints.save(half, {})
            checkpoints.wait()
            restored = checkpoints.restore(2, update.state_shapes)[0]
        finally:
            checkpoints.close()
    found = jax.device_get(updated(update, rows, trial.config, 2, restored))
    return require_same_bits(found, jax.device_get(updated(update, rows, trial.config, 4)))


def parts_equal_whole(trial: Trial, length: int) -> str:
    """Two parts of a batch, accumulated, make the update of the whole batch."""
    rows = trial.rows(sentences(ROWS, length))
    batching = replace(trial.config.batching, accumulation_steps=2)
    halves = Trial(replace(trial.config, batching=batching))
    found = _after_two(halves, halves.update(), rows)
    return require_near(found, _after_two(trial, trial.update(), rows), tolerance=1e-3)


def learns_a_batch(trial: Trial, length: int) -> str:
    """The loss of a batch that is repeated falls."""
    update, rows = trial.update(), trial.rows(sentences(ROWS, length))
    loss = jax.jit(lambda params: trial.loss_sums(params, rows).loss)
    first = updated(update, rows, trial.config, 0)
    last = updated(update, rows, trial.config, trial.config.training.num_updates)
    before, after = float(loss(first.params)), float(loss(last.params))
    if not after < before:
        raise Broken(f"the loss goes from {before:.3f} to {after:.3f} in {trial.config.training.num_updates} updates")
    return f"loss {before:.0f} to {after:.0f}"


def skips_what_is_not_finite(trial: Trial, length: int) -> str:
    """An update whose loss is not finite leaves parameters and optimizer state as they were."""
    rows = trial.rows(sentences(2, length))

    def not_finite(*arguments: PyTree) -> LossSums:
        sums = trial.loss_sums(arguments[0], rows)
        return sums._replace(loss=sums.loss * float("nan"))

    update = trial.update(loss=not_finite)
    state = update.initial_state(0)
    before = jax.device_get(state)
    after = jax.device_get(updated(update, rows, trial.config, 1, state))
    return require_same_bits((after.params, after.optimizer_state), (before.params, before.optimizer_state))


def _after_two(trial: Trial, update: Update, rows: PyTree) -> PyTree:
    return _parameters(update, updated(update, rows, trial.config, 2))


def _parameters(update: Update, state: TrainState) -> PyTree:
    """The trained parameters and, with an average, the evaluated ones."""
    return {"params": state.params, "evaluated": update.evaluation_params(state)}
