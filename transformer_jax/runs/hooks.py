"""The hooks of a run: functions that are called with the run after an update, in the order of ``hooks_of``."""

import faulthandler
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.config import ConfigError
from transformer_jax.config.errors import complain
from transformer_jax.config.optimization import ENDLESS_SCHEDULES
from transformer_jax.runs.goodput import TRAINING, Clock
from transformer_jax.runs.progress import LOGGER
from transformer_jax.runs.run import Hook, TrainingDiverged, TrainingRun
from transformer_jax.runtime.background import in_background
from transformer_jax.runtime.distributed import STATUS_TO_RESTART, is_first
from transformer_jax.runtime.hardware import host_usage
from transformer_jax.runtime.preemption import CutShort
from transformer_jax.tasks.task import Evaluation
from transformer_jax.training.nonfinite import find_nonfinite
from transformer_jax.training.sharding import put_batch, put_hyperparameters
from transformer_jax.training.step import StepMetrics

Due = Callable[[int], bool]
"""Whether a hook is called after the update of this number."""

# A batch on a CPU, so that validations reuse the programs of the dry run.
DRY_RUN_EXAMPLES = 32
# An estimate this close to the budget changes nothing: noise of the clock must not move the end of the schedule.
TOLERANCE = 0.03
# With budget_policy=stretch the estimate is logged again when it has changed by more than this share.
LOGGED_CHANGE = 0.1
MIN_SECONDS_OF_HANG = 60.0


def hooks_of(run: TrainingRun, observers: Sequence[Hook]) -> list[tuple[Due, Hook]]:
    """The hooks of a run in order, each with the updates after which it is called.

    Where a validation or a checkpoint is due, ``run.state`` is the state of the update. ``observers`` are called after every
    update, when it is logged and saved, unless a hook before them raises.
    """

    def always(number: int) -> bool:
        return True

    return [
        (always, count),
        (always, lambda run: run.goodput.write_at_intervals(run.number)),
        (run.is_logged_after, Log(run)),
        (run.is_estimated_after, require_sound),
        (run.is_validated_after, validate),
        (run.is_estimated_after, KeepToBudget()),
        (run.is_saved_after, save),
        *((always, observer) for observer in observers),
    ]


def call_hooks(run: TrainingRun, hooks: Sequence[tuple[Due, Hook]], number: int, unread: StepMetrics | None) -> None:
    """Waits for ``unread``, the metrics of update ``number``, and calls its hooks; None: that was done before.

    Raises TrainingDiverged where loss or gradient are not finite.
    """
    if unread is None:
        return
    run.number, run.metrics = number, jax.device_get(unread)
    run.logged, run.validated, run.score, run.is_saved, run.has_new_length = {}, {}, None, False, False
    for is_due, hook in hooks:
        if is_due(number):
            was_stopped = run.is_stopped
            hook(run)
            if run.is_stopped and not was_stopped:
                name = getattr(hook, "__qualname__", type(hook).__name__)
                LOGGER.info("update %d: the callback %s ends the run", number, name)


class Callback:
    """A hook with a method for each event; override what you need.

    ``step`` is the number of updates so far; metrics have their names in the log of the run: ``train/loss``.
    """

    def __call__(self, run: TrainingRun) -> None:
        if trained := {name: value for name, value in run.logged.items() if name not in run.validated}:
            self.on_log(run.number, trained)
        if run.validated and self.on_validation(run.number, run.validated):
            run.stop()
        if run.is_saved:
            self.on_checkpoint(run.number, run.directory.checkpoints / str(run.number))

    def on_log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Every ``training.log_every`` updates, and after the last planned one."""

    def on_validation(self, step: int, metrics: Mapping[str, float]) -> bool | None:
        """After every validation; True ends the run there."""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """When a checkpoint is being written to ``folder``."""


def count(run: TrainingRun) -> None:
    """Adds the metrics of the update to the counters.

    Raises TrainingDiverged when more updates than ``training.skip_nonfinite`` were not finite, and, in a single process,
    SaveFailed when writing a checkpoint has failed.
    """
    run.checkpoints.require_saving()
    assert run.metrics is not None
    if not run.metrics.finite and run.counters.skipped >= run.config.training.skip_nonfinite:
        # It compiles another program; the watchdog does not limit evaluations.
        with run.clock.spend("evaluation"):
            raise TrainingDiverged(_explained_divergence(run, run.metrics))
    run.counters.add(run.metrics)


def _explained_divergence(run: TrainingRun, metrics: StepMetrics) -> str:
    """Repeats the update with the present parameters, which the next update may have changed, to name a tensor."""
    before = run.number - 1
    batch = put_batch(next(run.data.batches(before)), run.update.mesh)
    key = run.state._replace(step=jnp.asarray(before, run.state.step.dtype)).dropout_key()
    hyperparameters = put_hyperparameters(run.hyperparameters, run.update.mesh)
    objective, steps = run.task.objective, run.config.batching.accumulation_steps
    where = find_nonfinite(objective.activations, run.update.loss, steps, run.state.params, batch, key, hyperparameters)
    return (
        f"update {run.number}: loss {float(metrics.sums.loss):g}, gradient norm {float(metrics.gradient_norm):g}; first tensor "
        f"that is not finite: {where or 'none when the update was repeated, with later parameters'}. {_remedy(run)}"
    )


def _remedy(run: TrainingRun) -> str:
    return (
        f"Checkpoints kept: {run.checkpoints.steps()}. Look at that tensor, or restart, in another --workdir, with a "
        "lower optimizer.learning_rate, with optimizer.clip_norm or with smaller batches"
    )


class Log:
    """Logs the means over the updates since the last line, and the speed."""

    def __init__(self, run: TrainingRun) -> None:
        self._tokens, self._seconds = run.counters.total_tokens, 0.0

    def __call__(self, run: TrainingRun) -> None:
        assert run.metrics is not None
        seconds, tokens = run.clock.total(TRAINING), run.counters.total_tokens
        rate = (tokens - self._tokens) / max(seconds - self._seconds, 1e-9)
        self._tokens, self._seconds = tokens, seconds
        run.record(
            run.counters.take_means()
            | {
                "train/gradient_norm": float(run.metrics.gradient_norm),
                "train/learning_rate": float(run.update.schedule(run.hyperparameters)(run.number)),
                "train/target_tokens": tokens,
                "speed/target_tokens_per_second": rate,
                **host_usage(run.directory.path),
            }
        )
        run.goodput.write(run.number)


def require_sound(run: TrainingRun) -> None:
    """Waits for the check of the data, before anything trained on them is saved; raises DataError where they are damaged."""
    # To read a large store takes minutes, which are not part of an update.
    with run.clock.spend("checkpoint"):
        run.data.require_sound()


def validate(run: TrainingRun) -> None:
    """Validates the state. A signal skips or interrupts the validation, and the resumed run begins with it.

    Raises TrainingDiverged when the validation loss is not finite.
    """
    found: Evaluation | None = None
    if not run.is_interrupted:
        with suppress(CutShort), run.interruption.cutting_short(), run.clock.spend("evaluation"):
            found = run.task.validate(
                run.evaluated_params, "validation", limit=run.config.training.validation_sentences
            )
    run.is_interrupted = run.is_validation_due = found is None
    if found is None:
        return
    selection = run.config.selection
    run.validated = {f"validation/{name}": value for name, value in found.metrics.items()}
    run.record(run.validated)
    if not math.isfinite(found.metrics["loss"]):
        raise TrainingDiverged(f"update {run.number}: the validation loss is {found.metrics['loss']}; {_remedy(run)}")
    run.score = selection.value_in(found.metrics)
    is_best = run.counters.add_validation(run.score, selection)
    best = "none finite so far" if run.counters.best is None else f"best {selection.text(run.counters.best)}"
    best = "the best so far" if is_best else best
    LOGGER.info("update %d: validation %s (%s)", run.number, found.summary, best)
    for sign in run.signs.sentences(run.num_updates):
        LOGGER.warning("update %d: WARNING: %s", run.number, sign)


class KeepToBudget:
    """Estimates the end of the run; where it misses ``training.budget_seconds``, logs that, and moves the end if it may."""

    def __init__(self) -> None:
        self._logged_minutes = 0.0

    def __call__(self, run: TrainingRun) -> None:
        budget, policy = run.config.training.budget_seconds, run.config.training.budget_policy
        if not run.has_budget or run.number >= run.num_updates or run.is_interrupted:
            return
        # The speed is not known before the second update of a start.
        if not run.clock.recent_update_seconds():
            return
        spent, each = sum(run.goodput.seconds().values()), run.seconds_per_update
        run.estimated_at = run.clock.total(TRAINING)
        planned = run.config.training.num_updates
        length = affordable_updates(run.number, spent, each, budget, run.num_updates, planned)
        if length == run.num_updates:
            return
        expected = (spent + (run.num_updates - run.number) * each) / 60
        problem = (
            f"update {run.number}: {run.num_updates:,} updates will take {expected:.1f} minutes, not {budget / 60:.1f}"
        )
        if policy == "stretch":
            if abs(expected - self._logged_minutes) > LOGGED_CHANGE * expected:
                self._logged_minutes = expected
                LOGGER.info("%s (training.budget_policy=stretch)", problem)
            return
        decay = ", and its learning rate decays until then" * (run.config.optimizer.schedule not in ENDLESS_SCHEDULES)
        LOGGER.info("%s; the run now ends at update %s%s", problem, f"{length:,}", decay)
        run.counters.num_updates, run.has_new_length = length, True


def affordable_updates(
    number: int, spent: float, seconds_per_update: float, budget: float, current: int, planned: int
) -> int:
    """The number of updates that fit into the budget: at least one more than ``number``, at most ``planned``.

    ``number`` updates took ``spent`` of ``budget`` seconds. A ``current`` length within 3 % of the budget stays.
    """
    expected = spent + (current - number) * seconds_per_update
    if abs(expected - budget) <= TOLERANCE * budget:
        return current
    affordable = number + int((budget - spent) / max(seconds_per_update, 1e-9))
    return min(max(affordable, number + 1), planned)


def save(run: TrainingRun) -> None:
    """Starts writing a checkpoint, with the score of its validation, unless this update has one."""
    run.log.sync()
    run.trackers.sync()
    with run.clock.spend("checkpoint"):
        run.checkpoints.save(run.state, run.progress(), run.score, run.evaluated_params)
    run.is_saved = True
    run.goodput.saved(run.number)
    run.goodput.write(run.number)


def dry_run(run: TrainingRun) -> None:
    """Evaluates, decodes and saves the first state, so that none of these fails for the first time after hours.

    Its evaluation counts as start-up. Raises KeyboardInterrupt where a signal interrupts it: there is nothing to save;
    ConfigError where the evaluation lacks the selection metric.
    """
    done = "saving done"
    if run.config.training.evaluate_every:
        examples = min(DRY_RUN_EXAMPLES, run.config.training.validation_sentences or DRY_RUN_EXAMPLES)
        try:
            with run.interruption.cutting_short():
                evaluation = run.task.validate(run.evaluated_params, "validation", limit=examples)
        except CutShort:
            raise KeyboardInterrupt(run.interruption.number) from None
        run.config.selection.value_in(evaluation.metrics)
        done = f"evaluation, decoding and saving done (untrained: {evaluation.summary})"
    save(run)
    run.checkpoints.wait()
    LOGGER.info("dry run: %s", done)


def make_up_validation(run: TrainingRun) -> None:
    """Validates the restored state, whose validation a signal prevented, and saves it again with its score."""
    validate(run)
    if not run.is_interrupted:
        run.log.sync()
        run.checkpoints.remove_unless_only(run.number)
        save(run)


class ProfiledSteps(NamedTuple):
    """Updates ``first`` to ``last``, both included, counted from 1."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "ProfiledSteps":
        """From ``A:B``; raises ConfigError unless A and B are numbers in order."""
        first, colon, last = text.partition(":")
        if not (colon and first.isdigit() and last.isdigit() and 0 < int(first) <= int(last)):
            raise ConfigError(f"--profile_steps: {text!r} is not A:B with 0 < A <= B, as 20:24")
        return cls(int(first), int(last))


class Profile:
    """Traces ``steps``, if any, into ``folder``, for TensorBoard and Perfetto."""

    def __init__(self, steps: ProfiledSteps | None, folder: Path) -> None:
        self._steps, self._folder = steps, folder
        self._is_tracing = False

    def is_due(self, number: int) -> bool:
        """Whether the trace starts or ends after update ``number``."""
        return self._steps is not None and number in (self._steps.first - 1, self._steps.last)

    def __call__(self, run: TrainingRun) -> None:
        """Starts or ends the trace, on process 0."""
        if self._steps and run.number == self._steps.first - 1 and is_first():
            jax.profiler.start_trace(str(self._folder), create_perfetto_trace=True)
            self._is_tracing = True
        elif self.is_due(run.number):
            self.close()

    def close(self) -> None:
        """Ends a running trace."""
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()


@contextmanager
def watchdog(clock: Clock, factor: float, stacks: Path, end: Callable[[int], object] = os._exit) -> Iterator[None]:
    """Ends the process when an update takes ``factor`` times the mean of recent ones, at least a minute; 0: never.

    A call on a lost device or a dead collective never returns. The stacks of all threads are first appended to ``stacks`` and
    printed. Compilation, evaluation and checkpoints may take any time.
    """

    def watch(over: threading.Event) -> None:
        while not over.wait(MIN_SECONDS_OF_HANG / 20):
            usual = clock.recent_update_seconds()
            limit = max(factor * usual, MIN_SECONDS_OF_HANG)
            if usual and clock.kind in TRAINING and time.perf_counter() - clock.since > limit:
                # No links: a run directory from somebody else must not choose the file.
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
                with suppress(OSError), os.fdopen(os.open(stacks, flags, 0o666), "a", encoding="utf-8") as file:
                    faulthandler.dump_traceback(file, all_threads=True)
                found = f"no update for {limit:.0f} s; the stacks of all threads are in {stacks}, and here:"
                complain(found)
                with suppress(OSError):
                    # Only process 0 has a file that outlives its host.
                    faulthandler.dump_traceback(2, all_threads=True)
                end(STATUS_TO_RESTART)
                return

    if not factor:
        yield
        return
    with in_background(watch, "watchdog"):
        yield
