"""Properties of an update: on every mesh, compiled or not, resumed, and with a loss of NaN.

They take a ``Trial`` and the length of its sentences, return a few words, and raise ``Broken``.
"""

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import MeshConfig, scheduled_hyperparameters_of
from transformer_jax.registry.plugins import registered
from transformer_jax.tools.conform.comparison import Broken, require_near, require_same_bits
from transformer_jax.tools.conform.trials import Trial, optimized, single_mesh
from transformer_jax.training.sharding import put_hyperparameters, put_rows
from transformer_jax.training.state import TrainState
from transformer_jax.training.update import Update

# Of parameters after updates with large learning rates, relative to the largest entry of an array.
TOLERANCE = 1e-3


def update_equals_eager(trial: Trial, length: int) -> str:
    """Check that an update without jit is the one that the optimizing compiler makes."""
    update = trial.update
    with optimized(True):
        expected, _ = Trial(trial.config).updated(trial.rows(length), 1)
    rows = put_rows(trial.rows(length), single_mesh())
    hyperparameters = put_hyperparameters(scheduled_hyperparameters_of(trial.config), single_mesh())
    with jax.disable_jit():
        eager, _ = update.step(trial.initial_state, rows, hyperparameters)
    return require_near(_parameters(update, eager), _parameters(update, expected), tolerance=TOLERANCE)


def meshes_agree(trial: Trial, length: int) -> str:
    """Check that a mesh that splits parameters, heads and positions does not change two updates."""
    # Recurrent models do not split heads and positions.
    axes = ("fsdp",) if trial.config.model.is_recurrent else ("fsdp", "tensor", "context")
    if 2 ** len(axes) > jax.device_count():
        return f"not checked on {jax.device_count()} devices"
    # Positions divide over the axis that splits them.
    rows = trial.rows(length + length % 2)

    def compare(names: tuple[str, ...], update: Update) -> str:
        expected, actual = (_after_two(trial, rows, on_mesh) for on_mesh in (trial.update, update))
        return require_near(actual, expected, "=2, ".join(names) + "=2", tolerance=TOLERANCE)

    def update_on(names: tuple[str, ...]) -> Update:
        return trial.update_on(MeshConfig(**{"data": 1, **dict.fromkeys(names, 2)}))

    try:
        return compare(axes, update_on(axes))
    except Exception:
        # All are built before the first is compiled.
        for name, update in [((axis,), update_on((axis,))) for axis in axes]:
            compare(name, update)
        raise


def resumed_to_the_bit(trial: Trial, length: int) -> str:
    """Check that two updates and two of a restored checkpoint are four updates."""
    rows = trial.rows(length)
    half, _ = trial.updated(rows, 2)
    with TemporaryDirectory() as folder, closing(Checkpoints(Path(folder))) as checkpoints:
        checkpoints.save(half, {})
        checkpoints.wait()
        restored = checkpoints.restore(2, trial.update.state_shapes)[0]
    resumed, uninterrupted = trial.updated(rows, 2, state=restored)[0], trial.updated(rows, 4)[0]
    return require_same_bits(jax.device_get(resumed), jax.device_get(uninterrupted))


def micro_batches_equal_whole(trial: Trial, length: int) -> str:
    """Check that two micro-batches, on two devices if there are two, give the update of the batch.

    A loss term that is not a sum over tokens gives it if the micro-batches have the same rows.
    """
    if trial.config.training.corruption_names:
        return "not checked: micro-batches are corrupted by different random numbers"
    rows = trial.rows(length)
    halves = Trial(replace(trial.config, batching=replace(trial.config.batching, accumulation_steps=2)))

    is_linear = all(registered("loss_term")[name].is_sum_of_tokens for name in trial.config.training.loss_term_names)
    # A device has half of the rows. Every other one is in its first micro-batch.
    same = rows if is_linear else jax.tree.map(lambda array: array[[0, 0, 1, 1, 0, 0, 1, 1]], rows)
    count = min(2, jax.device_count())
    split = halves.update_on(MeshConfig(data=count))

    def compare(rows: PyTree, tolerance: float) -> str:
        actual, expected = (_after_two(trial, rows, update) for update in (split, trial.update))
        return require_near(actual, expected, f"accumulation_steps=2, data={count}", tolerance)

    worst = compare(same, TOLERANCE)
    return worst if is_linear else f"not linear: micro-batches differ by {compare(rows, math.inf)}"


def learns_a_batch(trial: Trial, length: int) -> str:
    """Check that the loss of a batch that is repeated falls."""
    count = trial.config.training.num_updates
    losses = trial.updated(trial.rows(length), count)[1]
    if not losses[-1] < losses[0]:
        raise Broken(f"the loss goes from {losses[0]:.3f} to {losses[-1]:.3f} in {count} updates")
    return f"loss {losses[0]:.0f} to {losses[-1]:.0f}"


def skips_what_is_not_finite(trial: Trial, length: int) -> str:
    """Check that an update with a loss of NaN changes neither parameters nor optimizer state."""
    before, (state, _) = trial.initial_state, trial.updated(trial.rows(length), 1, label_smoothing=float("nan"))
    after = jax.device_get(state)
    return require_same_bits((after.params, after.optimizer_state), (before.params, before.optimizer_state))


def _after_two(trial: Trial, rows: PyTree, update: Update) -> PyTree:
    return _parameters(update, trial.updated(rows, 2, update)[0])


def _parameters(update: Update, state: TrainState) -> PyTree:
    """Return the trained parameters and, with an average, the evaluated ones."""
    return {"params": state.params, "evaluated": update.evaluation_params(state)}
