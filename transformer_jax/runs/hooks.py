"""The hooks of a run: functions of the run and its position, called after updates."""

import faulthandler
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.config import ConfigError
from transformer_jax.errors import StoreError, complain
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.paths import in_store
from transformer_jax.runs.goodput import TRAINING, Clock
from transformer_jax.runs.progress import LOGGER
from transformer_jax.runs.run import Hook, Position, Results, RunParts, TrainingDiverged, validation_interval
from transformer_jax.runtime.background import future_of, in_background
from transformer_jax.runtime.distributed import is_first
from transformer_jax.runtime.hardware import host_usage
from transformer_jax.runtime.preemption import CutShort
from transformer_jax.runtime.process_group import STATUS_TO_RESTART
from transformer_jax.tasks.task import Evaluation
from transformer_jax.training.nonfinite import find_nonfinite
from transformer_jax.training.schedules import of_next_update
from transformer_jax.training.sharding import put_batch, put_hyperparameters
from transformer_jax.training.step import StepMetrics

Due = Callable[[RunParts, Position, int], bool]
"""Whether a hook is called, with the state, after the update of this number."""

# A batch on a CPU, so that validations reuse the programs of the dry run.
DRY_RUN_EXAMPLES = 32
# Limits of the watchdog, in seconds.
MIN_SECONDS_OF_HANG = 60.0
SECONDS_TO_SAVE = 3600.0
SECONDS_TO_WRITE_STACKS = 10.0


class Hooks:
    """The hooks of a run in order. Some have a condition and need the state.

    Callbacks come last, but those with ``needs_state`` before the checkpoint.
    """

    def __init__(self, run: RunParts, position: Position, callbacks: Sequence[Hook]) -> None:
        self._run, self._position, self._callbacks = run, position, callbacks
        self._hooks: list[tuple[Due | None, Hook]] = [
            (None, count),
            (None, lambda run, position: run.goodput.write_between_saves(position.number)),
            (None, Log(run, position)),
            (is_validation_due, validate),
            (None, lambda run, position: position.stop_if_over(run.config)),
            *((callback.needs_state, callback) for callback in callbacks if hasattr(callback, "needs_state")),
            (is_save_due, write_checkpoint),
            *((None, callback) for callback in callbacks if not hasattr(callback, "needs_state")),
        ]

    def begin(self) -> None:
        """Call the callbacks once before the first update."""
        for callback in self._callbacks:
            self._call(callback)

    def need_state(self, number: int) -> bool:
        """Return whether a hook needs the state after update ``number``."""
        return any(is_due(self._run, self._position, number) for is_due, _ in self._hooks if is_due)

    def call(self, number: int, metrics: StepMetrics, *, has_state: bool = False) -> None:
        """Wait for the metrics of update ``number`` and call its hooks.

        ``has_state``: also call the hooks that need the state. Raises TrainingDiverged when loss or
        gradient are not finite.
        """
        run, position = self._run, self._position
        position.number, position.results = number, Results(jax.device_get(metrics))
        for is_due, hook in self._hooks:
            if is_due is None or (has_state and is_due(run, position, number)):
                self._call(hook)

    def _call(self, hook: Hook) -> None:
        before = self._position.ends
        hook(self._run, self._position)
        if self._position.ends == "stopped" and before != "stopped":
            name = getattr(hook, "__qualname__", type(hook).__name__)
            LOGGER.info("update %d: the callback %s ends the run", self._position.number, name)


def is_validation_due(run: RunParts, position: Position, number: int) -> bool:
    """Return whether a validation follows update ``number``.

    One follows the last update, unless the run never validates. A run whose length may change skips
    one shortly before its end.
    """
    every, last = validation_interval(run.config, position.num_updates), position.counters.validated_at
    if number == position.num_updates or not every:
        return every > 0 and number > last
    may_change = run.config.training.budget_seconds or position.num_updates != run.config.training.num_updates
    is_soon_over = may_change and 2 * (position.num_updates - number) < every
    return number - last >= every and not is_soon_over


def is_save_due(run: RunParts, position: Position, number: int) -> bool:
    """Return whether a checkpoint follows update ``number``.

    At intervals, after a validation, for a new length, and at the end.
    """
    is_due = number % run.config.training.checkpoint_every == 0 or number == position.num_updates
    is_validated = number == position.counters.validated_at or is_validation_due(run, position, number)
    return is_due or position.has_new_length or bool(position.ends) or is_validated


class Callback:
    """A hook with a method for each event.

    ``step`` is the number of updates so far. Metrics have their names in the log: ``train/loss``.
    """

    def __call__(self, run: RunParts, position: Position) -> None:
        step, results = position.number, position.results
        if trained := {name: value for name, value in results.logged.items() if name not in results.validated}:
            self.on_log(step, trained)
        if results.validated and self.on_validation(step, results.validated):
            position.stop()
        if results.is_saved:
            self.on_checkpoint(step, run.directory.checkpoints / str(step))

    def on_log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Receive the metrics, every ``training.log_every`` updates and after the last one."""

    def on_validation(self, step: int, metrics: Mapping[str, float]) -> bool | None:
        """Receive a validation; True ends the run there."""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """Receive the ``folder`` to which a checkpoint is being written."""


def count(run: RunParts, position: Position) -> None:
    """Add the metrics of the update to the counters.

    Raises TrainingDiverged when more updates than ``training.skip_nonfinite`` were not finite, and,
    in a single process, SaveFailed when writing a checkpoint has failed.
    """
    run.checkpoints.require_saving()
    metrics, counters = position.results.metrics, position.counters
    assert metrics is not None
    if not metrics.finite and counters.skipped >= run.config.training.skip_nonfinite:
        # It compiles another program; the watchdog does not limit evaluations.
        with run.clock.spend("evaluation"):
            raise TrainingDiverged(_explained_divergence(run, position, metrics))
    counters.add(metrics)


def _explained_divergence(run: RunParts, position: Position, metrics: StepMetrics) -> str:
    """Name the first tensor that is not finite, by repeating the update."""
    loss = float(metrics.sums.loss) / max(float(metrics.sums.tokens), 1.0)
    problem = f"update {position.number}: loss {loss:g} per token, gradient norm {float(metrics.gradient_norm):g}"
    LOGGER.info("%s; searching for the first tensor that is not finite (compiles the update once more)", problem)
    before = position.number - 1
    batch = put_batch(next(run.data.batches(before)), run.update.mesh)
    state = position.state._replace(step=jnp.asarray(before, position.state.step.dtype))
    hyperparameters = of_next_update(run.hyperparameters(position.num_updates), before)
    hyperparameters = put_hyperparameters(hyperparameters, run.update.mesh)
    objective, steps = run.task.objective, run.config.batching.accumulation_steps
    tensor = find_nonfinite(
        objective.activations, run.update.loss, steps, state.params, batch, state.dropout_key(), hyperparameters
    )
    tensor = tensor or "none when the update was repeated, with later parameters"
    return f"{problem}; first tensor that is not finite: {tensor}. {_remedy(run)}"


def _remedy(run: RunParts) -> str:
    clip = run.config.optimizer.clip_norm
    clipped = f"a smaller optimizer.clip_norm (now {clip:g})" if clip else "optimizer.clip_norm"
    return (
        f"Checkpoints kept: {run.checkpoints.steps()}. Look at that tensor, or restart, in another --workdir, with a "
        f"lower optimizer.learning_rate, with {clipped} or with smaller batches"
    )


class Log:
    """Logs means over the updates since the last line, and the speed."""

    def __init__(self, run: RunParts, position: Position) -> None:
        self._every, self._tokens, self._seconds = run.config.training.log_every, position.counters.total_tokens, 0.0

    def __call__(self, run: RunParts, position: Position) -> None:
        number, metrics = position.number, position.results.metrics
        if number % self._every and number != position.num_updates:
            return
        assert metrics is not None
        seconds, tokens = run.clock.total(TRAINING), position.counters.total_tokens
        rate = (tokens - self._tokens) / max(seconds - self._seconds, 1e-9)
        self._tokens, self._seconds = tokens, seconds
        schedule = run.update.schedule(run.hyperparameters(position.num_updates))
        scheduled = {
            f"train/{key}": float(setting.ramp.at(number, position.num_updates, np))
            for key, setting in run.config.schedules.items()
        }
        run.record(
            position,
            position.counters.take_means()
            | {
                "train/gradient_norm": float(metrics.gradient_norm),
                "train/learning_rate": float(schedule(number)),
                **scheduled,
                "train/target_tokens": tokens,
                "speed/target_tokens_per_second": rate,
                **host_usage(run.directory.local),
            },
        )
        run.goodput.write_between_saves(number, after=0)


def validate(run: RunParts, position: Position) -> None:
    """Validate the state. After a signal the resumed run does it. Raises TrainingDiverged."""
    evaluation: Evaluation | None = None
    if position.ends != "interrupted":
        with suppress(CutShort), run.interruption.cutting_short(), run.clock.spend("evaluation"):
            params, limit = run.update.evaluation_params(position.state), run.config.training.validation_sentences
            evaluation = run.task.validate(params, "validation", limit=limit)
    position.is_validation_due = evaluation is None
    if evaluation is None:
        position.stop("interrupted")
        return
    selection, results, counters = run.config.selection, position.results, position.counters
    results.validated = {f"validation/{name}": value for name, value in evaluation.metrics.items()}
    run.record(position, results.validated)
    if not math.isfinite(evaluation.metrics["loss"]):
        problem = f"update {position.number}: the validation loss is {evaluation.metrics['loss']}"
        raise TrainingDiverged(f"{problem}; {_remedy(run)}")
    results.score, line = selection.value_in(evaluation.metrics), run.score_line(evaluation)
    counters.validated_at, counters.basis = position.number, evaluation.basis
    is_best = counters.add_validation(results.score, selection)
    best = "none finite so far" if counters.best is None else f"best {selection.text(counters.best)}"
    best = "the best so far" if is_best else best
    LOGGER.info("update %d: validation %s (%s)", position.number, line, best)
    # The outcome of a run that ends here has them too.
    for sign in run.signs.sentences(position.num_updates) if position.number < position.num_updates else ():
        LOGGER.warning("update %d: WARNING: %s", position.number, sign)


def write_checkpoint(run: RunParts, position: Position) -> None:
    """Start writing a checkpoint once the log of its updates is durable."""
    run.trackers.sync()
    with run.clock.spend("checkpoint"):
        with run.checkpoints.writing():
            run.log.sync()
            run.directory.publish()
        evaluated = run.update.evaluation_params(position.state)
        run.checkpoints.save(position.state, run.progress(position), position.results.score, evaluated)
    position.results.is_saved, position.has_new_length = True, False
    run.goodput.saved(position.number)
    with run.clock.spend("checkpoint"):
        run.goodput.write(position.number)


def dry_run(run: RunParts, position: Position, parameters: str) -> None:
    """Evaluate, decode and save the first state, so that a failure shows at once.

    ``parameters``: a word on their origin, for the log. The evaluation counts as start-up. Raises
    ConfigError if the evaluation lacks the selection metric, and KeyboardInterrupt at a signal:
    there is nothing to save.
    """
    done = "saving done"
    if run.config.training.evaluate_every:
        examples = min(DRY_RUN_EXAMPLES, run.config.training.validation_sentences or DRY_RUN_EXAMPLES)
        try:
            with run.interruption.cutting_short():
                params = run.update.evaluation_params(position.state)
                evaluation = run.task.validate(params, "validation", limit=examples)
        except CutShort:
            raise KeyboardInterrupt(run.interruption.number) from None
        done = f"evaluation, decoding and saving done ({parameters}: {run.score_line(evaluation)})"
        done += f"; {evaluation.signature}" if evaluation.signature else ""
    write_checkpoint(run, position)
    run.checkpoints.wait()
    LOGGER.info("dry run: %s", done)


def make_up_validation(run: RunParts, position: Position) -> None:
    """Validate the restored state, which a signal prevented, and save it again with its score."""
    validate(run, position)
    if not position.is_validation_due:
        run.log.sync()
        run.checkpoints.remove_unless_only(position.number)
        write_checkpoint(run, position)
        position.stop_if_over(run.config)


class ProfiledSteps(NamedTuple):
    """Updates ``first`` to ``last``, both included, counted from 1."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "ProfiledSteps":
        """Parse ``A:B``. Raises ConfigError unless A and B are numbers in order."""
        first, colon, last = text.partition(":")
        if not (colon and first.isdigit() and last.isdigit() and 0 < int(first) <= int(last)):
            raise ConfigError("--profile_steps", f"{text!r} is not A:B with 0 < A <= B, as 20:24")
        return cls(int(first), int(last))


class Profile:
    """A hook that traces ``steps`` into the run directory, for TensorBoard and Perfetto."""

    def __init__(self, steps: ProfiledSteps) -> None:
        self._steps, self._is_tracing = steps, False

    def needs_state(self, run: RunParts, position: Position, number: int) -> bool:
        """Return whether the trace starts or ends after update ``number``."""
        return number in (self._steps.first - 1, self._steps.last) or bool(position.ends)

    def __call__(self, run: RunParts, position: Position) -> None:
        """Start or end the trace on process 0."""
        if position.ends or position.number >= self._steps.last:
            self.close()
        elif position.number >= self._steps.first - 1 and not self._is_tracing and is_first():
            jax.profiler.start_trace(str(run.directory.profile), create_perfetto_trace=True)
            self._is_tracing = True

    def close(self) -> None:
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()


def _write_stacks(path: Path) -> None:
    """Append the stacks of all threads to a file, or replace an object of a store."""
    if in_store(path):
        with TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            future_of(write_whole, path, file.read()).result(SECONDS_TO_WRITE_STACKS)
        return
    # No links: a run directory from somebody else must not choose the file.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)


@contextmanager
def watchdog(clock: Clock, factor: float, stacks: Path, end: Callable[[int], object] = os._exit) -> Iterator[None]:
    """End the process when an update takes over a minute and ``factor`` times the recent mean.

    A call on a lost device or a dead collective never returns. The stacks of all threads are first
    printed and appended to ``stacks``. Waiting an hour for a checkpoint also ends the process,
    while compilation and evaluation may take any time. A ``factor`` of 0 disables the watchdog.
    """

    def watch(over: threading.Event) -> None:
        while not over.wait(MIN_SECONDS_OF_HANG / 20):
            usual, kind = clock.recent_update_seconds(), clock.kind
            of_update = max(factor * usual, MIN_SECONDS_OF_HANG) if usual else math.inf
            limits = dict.fromkeys(TRAINING, of_update) | {"checkpoint": SECONDS_TO_SAVE}
            limit = limits.get(kind, math.inf)
            if time.perf_counter() - clock.since > limit:
                missing = "checkpoint" if kind == "checkpoint" else "update"
                complain(f"no {missing} for {limit:.0f} s; the stacks of all threads are in {stacks}, and here:")
                with suppress(OSError):
                    # Only process 0 has a file that outlives its host.
                    faulthandler.dump_traceback(2, all_threads=True)
                with suppress(OSError, StoreError, TimeoutError):
                    _write_stacks(stacks)
                end(STATUS_TO_RESTART)
                return

    with in_background(watch, "watchdog") if factor else nullcontext():
        yield
