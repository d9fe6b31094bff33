"""The training loop: the only place where data and steps meet, of one run or of several vectorized ones."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, hyperparameters_of
from transformer_jax.runs.profiler import ProfiledSteps, Profiler
from transformer_jax.runs.progress import TrainingProgress
from transformer_jax.runs.record import Outcome, Say, TrainingDiverged, TrainingRecord
from transformer_jax.runtime.distributed import is_first
from transformer_jax.runtime.preemption import interruption
from transformer_jax.sequence_types import Batch
from transformer_jax.training.compiled_step import CompiledStep
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import StepFunction, StepMetrics
from transformer_jax.training.vectorized import Alone, Vectorized

Ending = Outcome | TrainingDiverged
OnEnd = Callable[[int, Ending], None]


def ignore_end(place: int, ending: Ending) -> None:
    """For whoever waits for all of them."""


class Trainer:
    """Makes the updates of the runs of ``records``, from wherever their newest checkpoints are to their ends.

    Several have the same structure, the same task and the same number of updates behind them; they see the same batches.
    Whoever made the records closes them.
    """

    def __init__(self, records: Sequence[TrainingRecord], profiled: ProfiledSteps | None = None) -> None:
        self._records = records
        self._task = records[0].task
        self._profiler = Profiler(profiled, records[0].run.profile)
        self._interruption = interruption()
        self._is_alone = jax.process_count() == 1
        # How the runs ended that have, by their places in ``records``, and who is told.
        self._endings: dict[int, Ending] = {}
        self._on_end: OnEnd
        # Of which runs an update is made, and what makes it.
        self._places: list[int]
        self._joined: Alone | Vectorized
        self._compiled: CompiledStep
        self._until_recompiled: ExitStack
        self._states: PyTree
        self._hyperparameters: PyTree
        self._progress: TrainingProgress

    def train(self, started: float | None = None, on_end: OnEnd = ignore_end) -> list[Ending]:
        """Trains each to its end, to the end of patience, or until SIGINT or SIGTERM; then everything is on disk.

        ``started``: when this start did, by ``time.perf_counter``, for the account of its time. ``on_end`` is called when one
        of them has ended, with its place in ``records``. TrainingDiverged when a loss or gradient was not finite: the
        checkpoints stay as they were, and the others continue.

        Raises ConfigError when the records are not of one task, or stand at different updates.
        """
        self._on_end = on_end
        with ExitStack() as stack:
            notes = [record.restore() for record in self._records]
            # Only now: runs that are refused leave what is written of them as it was.
            self._require_together()
            for record, each in zip(self._records, notes, strict=True):
                each += record.open(started, len(self._records))
            updates = max(record.config.training.num_updates for record in self._records)
            self._progress = TrainingProgress(updates, self._records[0].first, is_quiet=not is_first())
            for part in (self._progress, self._profiler, self._interruption):
                stack.enter_context(part)
            for place, each in enumerate(notes):
                for note in each:
                    self._say(place)(note)
            self._prepare_and_run()
        return [self._endings[place] for place in range(len(self._records))]

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether a signal came, though perhaps too late for an update."""
        return self._interruption.is_asked

    def _require_together(self) -> None:
        if any(record.task is not self._task for record in self._records):
            raise ConfigError("vectorized runs: their data, tokenizers or models are not the same")
        if len({record.first for record in self._records}) > 1:
            raise ConfigError("vectorized runs: they stand at different updates")

    def _prepare_and_run(self) -> None:
        """Compiles the step in the background while parameters are made and evaluation, decoding and saving are tried once."""
        first = self._records[0].first
        for place, record in enumerate(self._records):
            if reason := record.reason_to_end(first):
                self._conclude(place, first, reason)
        if not self._live():
            return
        with ExitStack() as self._until_recompiled:
            self._compile_for(self._live(), first)
            batches = self._task.training_batches(first)
            self._join([self._records[place].begin(self._say(place), self._spend) for place in self._places])
            self._run(first, batches)

    def _run(self, step: int, batches: Iterator[Batch]) -> None:
        """Dispatches update n, then reads what update n - 1 reported, so that the device never waits for the reader."""
        pending: StepMetrics | None = None
        for place in self._places:
            self._records[place].turn_to_updates()
        while self._live():
            with self._spend("data_wait"):
                rows = next(batches)
            batch = self._joined.put_batch(rows)
            # What one process reads early the others must too, in case it says that the run diverged.
            if pending is not None and self._is_alone and not self._compiled.is_ready(batch):
                self._add(step, pending)
                pending = None
                if not self._live():
                    return
            train_step = self._step_for(batch, step + 1)
            self._profiler.before(step + 1)
            self._states, metrics = train_step(self._states, batch, self._hyperparameters)
            if pending is not None:
                self._add(step, pending)
            step, pending = step + 1, metrics
            if self._profiler.wants(step):
                jax.block_until_ready(self._states)
                self._profiler.stop()
            is_interrupted = self._interruption.stops_after(step)
            if is_interrupted or any(self._records[place].is_boundary(step) for place in self._live()):
                self._add(step, pending)
                pending = None
                self._at_boundary(step, is_interrupted)

    def _step_for(self, batch: Batch, step: int) -> StepFunction:
        with self._spend("compile"):
            if not self._compiled.is_announced(batch):
                shapes = f"{batch.source.ids.shape} and {batch.target.ids.shape}"
                self._progress.say(f"update {step}: compiling once more, for a batch of {shapes} that was not planned")
            return self._compiled.for_batch(batch)

    def _add(self, step: int, metrics: StepMetrics) -> None:
        """Reads what update ``step`` reported."""
        metrics = jax.device_get(metrics)
        told = []
        for place in self._live():
            record, of_one = self._records[place], self._joined.report_of(metrics, self._places.index(place))
            with self._diverging(place):
                if line := record.add(step, of_one, partial(self._state_of, place)):
                    told.append(line)
        self._progress.advance(step)
        if told:
            losses, rates = zip(*told, strict=True)
            self._progress.show(step, sum(losses) / len(told), sum(rates))

    def _at_boundary(self, step: int, is_interrupted: bool) -> None:
        with ExitStack() as paused:
            for place in self._live():
                paused.enter_context(self._records[place].paused())
            for place in self._live():
                record = self._records[place]
                if is_interrupted or record.is_boundary(step):
                    with self._diverging(place):
                        record.at_boundary(step, self._state_of(place), self._say(place), self._spend)
                        if reason := "interrupted" if is_interrupted else record.reason_to_end(step):
                            self._conclude(place, step, reason)
            live = self._live()
            # Compiling costs more than to carry on with a few that have ended.
            if live and len(live) <= len(self._places) // 2:
                states = [self._state_of(place) for place in live]
                self._compile_for(live, step)
                self._join(states)

    def _conclude(self, place: int, step: int, reason: str) -> None:
        self._close(place)
        self._end(place, self._records[place].conclude(step, reason))

    def _close(self, place: int) -> None:
        """Waits for the last checkpoint."""
        with self._spend("checkpoint"):
            self._records[place].close()

    def _end(self, place: int, ending: Ending) -> None:
        self._endings[place] = ending
        live = self._live()
        for each in live:
            self._records[each].share(len(live))
        self._on_end(place, ending)

    def _compile_for(self, places: list[int], first: int) -> None:
        """From now on the updates are those of the runs at ``places``."""
        self._until_recompiled.close()
        self._places = places
        self._joined = self._task.joined(len(places))
        self._compiled = CompiledStep(self._joined.lower, self._task.batch_shapes(first))
        self._until_recompiled.enter_context(closing(self._compiled))

    def _join(self, states: list[TrainState]) -> None:
        self._states = self._joined.join(states)
        self._hyperparameters = self._joined.put_hyperparameters(
            [hyperparameters_of(self._records[place].config) for place in self._places]
        )

    def _live(self) -> list[int]:
        return [place for place in range(len(self._records)) if place not in self._endings]

    def _state_of(self, place: int) -> TrainState:
        return self._joined.state_of(self._states, self._places.index(place))

    def _say(self, place: int) -> Say:
        """Prints a line above the bar; of several runs it tells which it is about."""
        name = f"[{self._records[place].run.path.name}] " if len(self._records) > 1 else ""
        return lambda message: self._progress.say(name + message)

    @contextmanager
    def _spend(self, kind: str) -> Iterator[None]:
        """All wait together, whichever it is for."""
        with ExitStack() as stack:
            for place in self._live():
                stack.enter_context(self._records[place].spend(kind))
            yield

    @contextmanager
    def _diverging(self, place: int) -> Iterator[None]:
        try:
            yield
        except TrainingDiverged as error:
            if len(self._records) > 1:
                self._say(place)(str(error))
            self._close(place)
            # The frames of the traceback would keep all states.
            self._end(place, error.with_traceback(None))
