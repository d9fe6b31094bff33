"""The training loop: data -> state -> step -> checkpoint."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

from transformer_jax.array_types import PyTree
from transformer_jax.runs.clock import Clock
from transformer_jax.runs.profiler import Profiler
from transformer_jax.runtime.preemption import AgreedInterruption, Interruption


@runtime_checkable
class Training(Protocol):
    """What the loop drives: one run (``SingleRun``), or several in one program (``VectorizedRuns``)."""

    def begin(self) -> tuple[int, PyTree]:
        """The number of updates made so far, and the state after them, on its devices."""

    def is_ready(self, batch: PyTree) -> bool:
        """Whether the step for batches of this shape is compiled."""

    def step(self, number: int, state: PyTree, batch: PyTree) -> tuple[PyTree, Any]:
        """Dispatches update ``number``: the next state, and metrics that are still being computed."""

    def report(self, number: int, state: PyTree, metrics: Any) -> None:
        """Waits for the metrics of update ``number``, checks that they are finite, and logs them; ``state`` is the newest."""

    def is_boundary(self, number: int) -> bool:
        """Whether update ``number`` ends with a validation or a checkpoint, or is the last."""

    def at_boundary(self, number: int, state: PyTree, *, is_interrupted: bool) -> PyTree:
        """Validates and saves; the state to train on."""

    def reason_to_end(self, number: int) -> str | None:
        """Why no update follows update ``number``, None where one does."""


def train_loop(
    training: Training,
    batches: Callable[[int], Iterator[PyTree]],
    interruption: Interruption | AgreedInterruption,
    clock: Clock,
    profiler: Profiler,
) -> int:
    """Trains to the end, to the end of patience, or until SIGINT or SIGTERM; then everything is on disk.

    Update n is dispatched before the metrics of update n - 1 are read, so that the device never waits for the host.
    ``batches``: those after an update, from its number. Returns the number of the last update.

    Raises TrainingDiverged when the loss or the gradient of a single run is not finite.
    """
    number, state = training.begin()
    if training.reason_to_end(number):
        return number
    rows, unread = batches(number), None
    clock.turn_to("step")
    while not training.reason_to_end(number):
        with clock.spend("data_wait"):
            batch = next(rows)
        if unread is not None and not training.is_ready(batch):
            # Compiling may take minutes: first log what is known.
            training.report(number, state, unread)
            unread = None
            if training.reason_to_end(number):
                break
        profiler.before(number + 1)
        state, metrics = training.step(number + 1, state, batch)
        if unread is not None:
            training.report(number, state, unread)
        number, unread = number + 1, metrics
        profiler.after(number, metrics)
        is_interrupted = interruption.stops_after(number)
        if is_interrupted or training.is_boundary(number):
            training.report(number, state, metrics)
            unread = None
            state = training.at_boundary(number, state, is_interrupted=is_interrupted)
    return number
