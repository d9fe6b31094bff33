"""The training loop: data -> state -> step -> checkpoint."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

from transformer_jax.array_types import PyTree
from transformer_jax.runs.clock import Clock
from transformer_jax.runs.profiler import Profiler
from transformer_jax.runtime.preemption import AgreedInterruption, Interruption


@runtime_checkable
class Training(Protocol):
    """Interface of the object that the loop drives: one run (``SingleRun``), or several in one program (``VectorizedRuns``)."""

    def begin(self) -> tuple[int, PyTree]:
        """The number of updates made so far, and the state after them, on its devices."""

    def step(self, number: int, state: PyTree, batch: PyTree, unread: Any) -> tuple[PyTree, Any]:
        """Dispatches update ``number``, then reads and logs ``unread``, the metrics of the update before, if any.

        Returns the next state, and metrics that are still being computed. Raises TrainingDiverged where ``unread`` are not
        finite and no other run continues.
        """

    def is_boundary(self, number: int) -> bool:
        """Whether update ``number`` ends with a validation or a checkpoint, or is the last."""

    def at_boundary(self, number: int, state: PyTree, unread: Any, *, is_interrupted: bool) -> PyTree:
        """Reads and logs the metrics of update ``number``, validates and saves; the state to train on."""

    def reason_to_end(self, number: int) -> str | None:
        """Reason to end before update ``number + 1``; None to continue."""


def train_loop(
    training: Training,
    batches: Callable[[int], Iterator[PyTree]],
    interruption: Interruption | AgreedInterruption,
    clock: Clock,
    profiler: Profiler,
) -> int:
    """Trains until the last update, the end of patience, or SIGINT or SIGTERM; then everything is on disk.

    Update n is dispatched before the metrics of update n - 1 are read, so that the device never waits for the host.
    ``batches``: those after an update, from its number. Returns the number of the last update.

    Raises TrainingDiverged when the loss or the gradient of a single run is not finite.
    """
    number, state = training.begin()
    if training.reason_to_end(number):
        return number
    rows, metrics = batches(number), None
    clock.turn_to("step")
    while not training.reason_to_end(number):
        with clock.spend("data_wait"):
            batch = next(rows)
        number += 1
        profiler.before(number)
        state, metrics = training.step(number, state, batch, metrics)
        profiler.after(number, metrics)
        is_interrupted = interruption.stops_after(number)
        if is_interrupted or training.is_boundary(number):
            state = training.at_boundary(number, state, metrics, is_interrupted=is_interrupted)
            metrics = None
    return number
