"""Several runs vectorized in one program: one model many times, with different hyperparameters and keys."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import NamedTuple

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, hyperparameters_of
from transformer_jax.runs.clock import Clock
from transformer_jax.runs.outcome import Outcome, TrainingDiverged
from transformer_jax.runs.prepared_run import PreparedRun
from transformer_jax.runs.progress import TrainingProgress
from transformer_jax.runs.record import RunRecord, Say
from transformer_jax.runs.shared_programs import TrainingProgram
from transformer_jax.training.compiled_step import CompiledStep
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import StepMetrics
from transformer_jax.training.vectorized import SingleUpdate, VectorizedUpdate

End = Outcome | TrainingDiverged
OnEnd = Callable[[int, End], None]
"""Called when a run has ended, with its place in the list of runs."""


class Group(NamedTuple):
    """The runs at ``places`` of the list, whose updates one program makes."""

    places: list[int]
    update: SingleUpdate | VectorizedUpdate
    compiled: CompiledStep
    hyperparameters: PyTree


class VectorizedRuns:
    """The runs of ``records``: same task, same number of updates so far, same batches.

    Each ends for itself. When half of a group have ended, the others are regrouped: compiling costs more than to carry on with
    a few that have ended.
    """

    def __init__(
        self,
        records: Sequence[RunRecord],
        program: TrainingProgram,
        progress: TrainingProgress,
        clock: Clock,
        on_end: OnEnd,
    ) -> None:
        self._records, self._program, self._progress, self._clock = records, program, progress, clock
        self._on_end = on_end
        self.ends: dict[int, End] = {}
        first = records[0].first_update
        live = [place for place, record in enumerate(records) if not record.reason_to_end(first)]
        self._group = self._group_of(live or [0], first)

    def begin(self) -> tuple[int, PyTree]:
        """The stacked states of the runs that have not ended before."""
        first = self._records[0].first_update
        for place, record in enumerate(self._records):
            if record.reason_to_end(first):
                self._end(place, record.conclude(first))
        live = self._live()
        if not live:
            return first, None
        states = [self._records[place].initial_state(self._say(place)) for place in live]
        # What was validated only now may end with that.
        for place in live:
            if self._records[place].reason_to_end(first):
                self._end(place, self._records[place].conclude(first))
        return first, self._group.update.join(states)

    def step(
        self, number: int, state: PyTree, batch: PyTree, unread: StepMetrics | None
    ) -> tuple[PyTree, StepMetrics | None]:
        """Dispatches one update of every run of the group, then logs the one before; before a step that must be compiled.

        Where the last runs turn out to have diverged, nothing is dispatched.
        """
        if not self._group.compiled.is_ready(batch):
            self._log(number - 1, state, unread)
            unread = None
            if not self._live():
                return state, None
        batch = self._group.update.put_batch(batch)
        with self._clock.spend("compile"):
            self._progress.warn_of_unplanned_shape(self._group.compiled, batch, number)
            step = self._group.compiled.for_batch(batch)
        state, metrics = step(state, batch, self._group.hyperparameters)
        self._log(number - 1, state, unread)
        return state, metrics

    def is_boundary(self, number: int) -> bool:
        """Whether it is one for any run that has not ended."""
        return any(self._records[place].is_boundary(number) for place in self._live())

    def at_boundary(self, number: int, state: PyTree, unread: StepMetrics | None, *, is_interrupted: bool) -> PyTree:
        """Logs, validates and saves the runs for which it is time; returns the state of those that continue."""
        self._log(number, state, unread)
        for place in self._live():
            if is_interrupted or self._records[place].is_boundary(number):
                self._conclude_update(place, number, state, is_interrupted=is_interrupted)
                is_interrupted = is_interrupted or self._records[place].is_interrupted
        if is_interrupted:
            # A signal during the validation of one ends all here: they resume together.
            for place in self._live():
                self._conclude_update(place, number, state, is_interrupted=True)
        live = self._live()
        if not live or len(live) > len(self._group.places) // 2:
            return state
        states = [self._state_of(state, self._group.places.index(place)) for place in live]
        self._regroup(live, number)
        return self._group.update.join(states)

    def reason_to_end(self, number: int) -> str | None:
        """Once all runs have ended."""
        return None if self._live() else "all runs have ended"

    def close(self) -> None:
        """Cancels what is not compiled yet."""
        self._group.compiled.close()

    def _log(self, number: int, state: PyTree, unread: StepMetrics | None) -> None:
        """Logs every run, unless that was done; one that diverged ends, and the others continue."""
        if unread is None:
            return
        metrics = jax.device_get(unread)
        lines = []
        for place in self._live():
            index = self._group.places.index(place)
            of_one = self._group.update.metrics_of(metrics, index)
            with self._ending_if_diverged(place):
                line = self._records[place].log(number, of_one, partial(self._state_of, state, index))
                lines += [line] if line else []
        self._progress.advance(number)
        if lines:
            losses, rates = zip(*lines, strict=True)
            each = self._records[self._live()[0]].seconds_per_update(number) * len(lines)
            self._progress.show(number, sum(losses) / len(lines), sum(rates), each)

    def _conclude_update(self, place: int, number: int, state: PyTree, *, is_interrupted: bool) -> None:
        """Validates and saves one run, and ends it if it is time to."""
        record = self._records[place]
        with self._ending_if_diverged(place):
            own = self._state_of(state, self._group.places.index(place))
            record.at_boundary(number, own, self._say(place), is_interrupted=is_interrupted)
            if record.reason_to_end(number):
                self._end(place, record.conclude(number))

    def _group_of(self, places: list[int], number: int) -> Group:
        update = self._program.update_of(len(places))
        compiled = CompiledStep(update.lower, self._records[0].data.batch_shapes(number))
        hyperparameters = [hyperparameters_of(self._records[place].config) for place in places]
        return Group(places, update, compiled, update.put_hyperparameters(hyperparameters))

    def _regroup(self, places: list[int], number: int) -> None:
        self._group.compiled.close()
        self._group = self._group_of(places, number)

    def _live(self) -> list[int]:
        return [place for place in self._group.places if place not in self.ends]

    def _state_of(self, state: PyTree, index: int) -> TrainState:
        return self._group.update.state_of(state, index)

    def _end(self, place: int, end: End) -> None:
        self.ends[place] = end
        self._clock.divide_among(len(self._live()))
        self._on_end(place, end)

    def say_notes(self) -> None:
        """Prints what each of the records has to say on its start."""
        for place, record in enumerate(self._records):
            for note in record.notes():
                self._say(place)(note)

    def _say(self, place: int) -> Say:
        """Prints a line above the bar that says which run it is about."""
        name = self._records[place].directory.path.name
        return lambda message: self._progress.say(f"[{name}] {message}" if len(self._records) > 1 else message)

    @contextmanager
    def _ending_if_diverged(self, place: int) -> Iterator[None]:
        try:
            yield
        except TrainingDiverged as error:
            self._say(place)(str(error))
            # The traceback would keep all states alive.
            self._end(place, error.with_traceback(None))


def require_together(runs: Sequence[PreparedRun]) -> None:
    """Raises ConfigError unless the runs can be vectorized; nothing of them is written yet."""
    if any(run.task is not runs[0].task for run in runs):
        raise ConfigError("vectorized runs: their data, tokenizers or models are not the same")
    if len({run.first_update for run in runs}) > 1:
        raise ConfigError("vectorized runs: they are at different updates")


@contextmanager
def vectorized_runs(
    records: Sequence[RunRecord], program: TrainingProgram, progress: TrainingProgress, clock: Clock, on_end: OnEnd
) -> Iterator[VectorizedRuns]:
    """The runs, whose step is compiled in the background from now on."""
    with closing(VectorizedRuns(records, program, progress, clock, on_end)) as runs:
        yield runs
