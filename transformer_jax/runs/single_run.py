"""One run, as the loop drives it."""

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.runs.clock import Clock
from transformer_jax.runs.progress import TrainingProgress
from transformer_jax.runs.record import RunRecord
from transformer_jax.runtime.distributed import wait_for_all
from transformer_jax.training.compiled_step import CompiledStep
from transformer_jax.training.sharding import put_batch, put_hyperparameters
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import StepMetrics


class SingleRun:
    """The run of ``record``, on the mesh of its update; ``compiled`` is its step."""

    def __init__(self, record: RunRecord, compiled: CompiledStep, progress: TrainingProgress, clock: Clock) -> None:
        self._record, self._compiled, self._progress, self._clock = record, compiled, progress, clock
        self._mesh = record.update.mesh
        self._hyperparameters = put_hyperparameters(record.hyperparameters, self._mesh)
        self._is_alone = jax.process_count() == 1
        self._met_shapes: set[tuple[tuple[int, ...], ...]] = set()

    def begin(self) -> tuple[int, TrainState]:
        """Restores or initializes the state; a new run is dry-run once."""
        return self._record.first_update, self._record.initial_state(self._progress.say)

    def step(
        self, number: int, state: TrainState, batch: PyTree, unread: StepMetrics | None
    ) -> tuple[TrainState, StepMetrics]:
        """Dispatches update ``number``, then logs the one before; before a step that must be compiled, which takes minutes.

        Several processes log at the same point, compiled or not: if the run diverged, all must end there.
        """
        if self._is_alone and not self._compiled.is_ready(batch):
            self._log(number - 1, state, unread)
            unread = None
        batch = put_batch(batch, self._mesh)
        with self._clock.spend("compile"):
            self._progress.warn_of_unplanned_shape(self._compiled, batch, number)
            step = self._compiled.for_batch(batch)
            self._await_compilation(batch, number)
        state, metrics = step(state, batch, self._hyperparameters)
        self._log(number - 1, state, unread)
        return state, metrics

    def _await_compilation(self, batch: PyTree, number: int) -> None:
        """Waits, before the first update of a shape, for processes that compile it more slowly."""
        shape = tuple(leaf.shape for leaf in jax.tree.leaves(batch))
        if not self._is_alone and shape not in self._met_shapes:
            self._met_shapes.add(shape)
            wait_for_all(f"compilation for update {number}")

    def is_boundary(self, number: int) -> bool:
        """Whether a validation or a checkpoint is due, or the last update is made."""
        return self._record.is_boundary(number)

    def at_boundary(
        self, number: int, state: TrainState, unread: StepMetrics | None, *, is_interrupted: bool
    ) -> TrainState:
        """Logs, validates and saves."""
        self._log(number, state, unread)
        planned = self._record.num_updates
        self._record.at_boundary(number, state, self._progress.say, is_interrupted=is_interrupted)
        if self._record.num_updates != planned:
            self._hyperparameters = put_hyperparameters(self._record.hyperparameters, self._mesh)
            self._progress.end_at(self._record.num_updates)
        return state

    def reason_to_end(self, number: int) -> str | None:
        """``finished``, ``patience``, ``stopped`` or ``interrupted``."""
        return self._record.reason_to_end(number)

    def _log(self, number: int, state: TrainState, unread: StepMetrics | None) -> None:
        """Waits for the metrics of update ``number``, unless they were read, and logs them; ``state`` is the newest.

        Raises TrainingDiverged, which says where, when the loss or the gradient is not finite.
        """
        if unread is None:
            return
        line = self._record.log(number, jax.device_get(unread), lambda: state)
        self._progress.advance(number)
        if line:
            self._progress.show(number, *line, self._record.seconds_per_update(number))
