"""Record of one run: settings, log, checkpoints, validations, and goodput; everything except the updates."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import jax
import jax.numpy as jnp

from transformer_jax.checkpoints.manager import Progress
from transformer_jax.config import Hyperparameters, hyperparameters_of, to_json
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.runs.clock import REPEATED, Clock
from transformer_jax.runs.goodput import Goodput
from transformer_jax.runs.learning_signs import signs_of
from transformer_jax.runs.metrics_log import LogContents, MetricsLog
from transformer_jax.runs.nonfinite import find_nonfinite
from transformer_jax.runs.outcome import Outcome, TrainingDiverged
from transformer_jax.runs.prepared_run import PreparedRun, reason_to_end_of
from transformer_jax.runs.run_directory import write_json
from transformer_jax.runs.time_budget import affordable_updates
from transformer_jax.runs.trackers import open_trackers
from transformer_jax.runtime.distributed import first_goes_first, is_first
from transformer_jax.runtime.hardware import host_usage
from transformer_jax.runtime.preemption import AgreedInterruption, CutShort, Interruption
from transformer_jax.tasks.protocol import DataReport, Evaluation, TrainingData
from transformer_jax.tasks.run_tokenizers import tokenizers_to_json
from transformer_jax.training.sharding import put_batch, put_hyperparameters
from transformer_jax.training.state import TrainState, count_parameters
from transformer_jax.training.step import StepMetrics

# A run that stretches says so again when its estimate has changed by more than this.
SAID_AGAIN = 0.1
# A batch of CPUs: its programs are those of validations too.
DRY_RUN_EXAMPLES = 32


Say = Callable[[str], None]


@contextmanager
def open_record(
    run: PreparedRun, data: TrainingData, clock: Clock, interruption: Interruption | AgreedInterruption
) -> Iterator["RunRecord"]:
    """Writes what the run is, and opens its log."""
    with first_goes_first():
        goodput = Goodput(run.directory.goodput, run.first_update, clock)
        _describe_run(run, data.report)
        # Of several processes, each of the others has a folder that vanishes.
        trackers = open_trackers(run.directory.metrics.parent, run.config, run.first_update) if is_first() else []
        most = run.logged.num_records if run.is_validation_due else None
        log = MetricsLog(run.directory.metrics, run.first_update, trackers, most)
        if change := log.contents.change_since(run.logged):
            run.notes.append(f"{run.directory.metrics}: {change}")
    with closing(log):
        yield RunRecord(run, data, log, goodput, clock, interruption)


class RunRecord:
    """The record of a run: logs updates, validates, saves, and knows when the run ends."""

    def __init__(
        self,
        run: PreparedRun,
        data: TrainingData,
        log: MetricsLog,
        goodput: Goodput,
        clock: Clock,
        interruption: Interruption | AgreedInterruption,
    ) -> None:
        self.config, self.directory, self.task, self.update = run.config, run.directory, run.task, run.update
        self.first_update, self.data = run.first_update, data
        self._run, self._log, self._goodput, self._clock = run, log, goodput, clock
        self._checkpoints, self._counters = run.checkpoints, run.counters
        self._schedule = run.update.schedule(self.hyperparameters)
        self._interruption = interruption
        self.is_interrupted = self._is_stopped = False
        self._saved_at, self._said_minutes = -1, 0.0
        self._tokens, self._logged_at = 0.0, 0.0

    @property
    def is_watched(self) -> bool:
        """Whether a budget of time moves the end: of a run that is alone in one process."""
        return jax.process_count() == 1 and self._clock.runs == 1

    @property
    def num_updates(self) -> int:
        """The update at which the run ends."""
        return self._run.num_updates

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters of the updates to come."""
        found = hyperparameters_of(self.config)
        if self.num_updates == self.config.training.num_updates:
            return found
        # A shortened run may end within its warm-up.
        warmup = min(found.warmup_updates, max(self.num_updates - 1.0, 1.0))
        return found._replace(num_updates=float(self.num_updates), warmup_updates=warmup)

    def seconds_per_update(self, number: int) -> float:
        """Mean time of this process for an update, with validations and checkpoints, without start-up and compilation."""
        self._clock.settle()
        seconds = (self._clock.seconds_of_a_run[kind] for kind in REPEATED)
        return sum(seconds) / max(number - self.first_update, 1)

    def notes(self) -> list[str]:
        """Notes on the start for the log: damage, origin of the parameters, the update it resumes at."""
        resumed = [f"resumed at update {self.first_update}"] if self.first_update else []
        return [*self._run.notes, *self._run.initial.notes(), *resumed]

    def initial_state(self, say: Say) -> TrainState:
        """The restored state, or the first one after a dry run: evaluation, decoding and saving, each done once.

        So nothing of it fails for the first time after hours. What it evaluates counts as start-up. A restored state is
        validated first where a signal cut that short. Raises KeyboardInterrupt where one cuts this short.
        """
        try:
            return self._restored_state(say) if self._run.restored else self._first_state(say)
        except CutShort:
            raise KeyboardInterrupt(self._interruption.number) from None

    def _restored_state(self, say: Say) -> TrainState:
        state = self._run.restored.pop()
        if self._run.is_validation_due:
            with self._interruption.cutting_short():
                found = self._evaluated(state)
            number = int(state.step)
            score = self._record_validation(number, found, say)
            self._run.is_validation_due = False
            self._log.sync()
            self._checkpoints.remove_unless_only(number)
            self._save(state, score)
        return state

    def _first_state(self, say: Say) -> TrainState:
        state = self._run.initial.state()
        done = "saving done"
        if self.config.training.evaluate_every:
            examples = min(DRY_RUN_EXAMPLES, self.config.training.validation_sentences or DRY_RUN_EXAMPLES)
            with self._interruption.cutting_short():
                evaluation = self.task.evaluate(state.params, "validation", limit=examples)
            done = f"evaluation, decoding and saving done (untrained: {evaluation.summary})"
        self._save(state, None)
        self._checkpoints.wait()
        say(f"dry run: {done}")
        return state

    def log(self, number: int, metrics: StepMetrics, state: Callable[[], TrainState]) -> tuple[float, float] | None:
        """Counts what update ``number`` reported; every ``log_every`` updates logs it: loss and target tokens per second.

        Raises TrainingDiverged when loss or gradient are not finite, and says where; ``state`` is the newest.
        """
        self._checkpoints.require_saving()
        if not metrics.finite and self._counters.skipped >= self.config.training.skip_nonfinite:
            self._explain_divergence(number, metrics, state())
        self._counters.add(metrics)
        self._tokens += float(metrics.sums.tokens)
        if number % self.config.training.log_every:
            return None
        now = self._clock.training_seconds()
        rate = self._tokens / max(now - self._logged_at, 1e-9)
        self._tokens, self._logged_at = 0.0, now
        window = self._counters.take_window()
        logged = window | {
            "train/gradient_norm": float(metrics.gradient_norm),
            "train/learning_rate": float(self._schedule(number)),
            "train/target_tokens": self._counters.total_tokens,
            "speed/target_tokens_per_second": rate,
            **host_usage(self.directory.path),
        }
        self._log.write(number, logged)
        self._run.callback.on_log(number, logged)
        self._goodput.write(number)
        return window["train/loss"], rate

    def is_boundary(self, number: int) -> bool:
        """Whether update ``number`` ends with a validation or a checkpoint, or is the last."""
        training = self.config.training
        return self._is_validated(number) or number % training.checkpoint_every == 0 or number == self.num_updates

    def at_boundary(self, number: int, state: TrainState, say: Say, *, is_interrupted: bool = False) -> None:
        """Validates ``state`` if it is time to, and saves it. After a signal it saves at once; a resumed run validates first.

        Called again for one update, it only notes a signal. Raises TrainingDiverged when the validation loss is not finite,
        DataError when the tokenized data are damaged.
        """
        if number == self._saved_at:
            self.is_interrupted = is_interrupted
            return
        self.data.require_sound()
        score, found = None, None
        is_due = self._is_validated(number)
        if is_due and not is_interrupted:
            with suppress(CutShort), self._interruption.cutting_short():
                found = self._evaluated(state)
            is_interrupted = found is None
        if found is not None:
            score = self._record_validation(number, found, say)
        self._run.is_validation_due = is_due and found is None
        self._keep_to_budget(number, say)
        self._log.sync()
        self._save(state, score)
        self._saved_at, self.is_interrupted = number, is_interrupted

    def reason_to_end(self, number: int) -> str | None:
        """Reason to end before update ``number + 1``; None to continue."""
        if self.is_interrupted:
            return "interrupted"
        reason = reason_to_end_of(self._run, number)
        return "stopped" if self._is_stopped and reason != "finished" else reason

    def conclude(self, number: int) -> Outcome:
        """Writes how the run ended, once the last checkpoint is on disk."""
        with self._clock.spend("checkpoint"):
            self._checkpoints.wait()
        self._goodput.write(number)
        reason = self.reason_to_end(number) or "interrupted"
        asked = self._interruption.number if reason == "interrupted" else 0
        best, signs = self._counters.best, tuple(self._signs())
        outcome = Outcome(number, reason, best, self._goodput.line(), self.config.selection.key, asked, signs)
        write_json(self.directory.outcome, outcome._asdict())
        return outcome

    def _is_validated(self, number: int) -> bool:
        """Whether the run itself evaluates after update ``number``."""
        training = self.config.training
        return training.evaluate_every > 0 and (number % training.evaluate_every == 0 or number == self.num_updates)

    def _evaluated(self, state: TrainState) -> Evaluation:
        with self._clock.spend("evaluation"):
            found: Evaluation = self.task.evaluate(
                state.params, "validation", limit=self.config.training.validation_sentences
            )
        return found

    def _record_validation(self, number: int, found: Evaluation, say: Say) -> float:
        """Logs and counts a validation; its value of the selection metric."""
        selection = self.config.selection
        logged = {f"validation/{name}": value for name, value in found.metrics.items()}
        self._log.write(number, logged)
        if not math.isfinite(found.metrics["loss"]):
            raise TrainingDiverged(f"update {number}: the validation loss is {found.metrics['loss']}; {self._remedy()}")
        value = found.metrics[selection.name]
        is_best = self._counters.add_validation(value, selection)
        best = "the best so far" if is_best else f"best {selection.text(self._counters.best or 0.0)}"
        say(f"update {number}: validation {found.summary} ({best})")
        for sign in self._signs():
            say(f"update {number}: WARNING: {sign}")
        is_asked = self._run.should_stop is not None and self._run.should_stop(number, logged)
        self._is_stopped |= bool(self._run.callback.on_validation(number, logged)) or is_asked
        return value

    def _keep_to_budget(self, number: int, say: Say) -> None:
        """Estimates when the run will end; says so where that misses the budget, and moves the end if it may."""
        budget, policy = self.config.training.budget_seconds, self.config.training.budget_policy
        if not budget or number >= self.num_updates or not self.is_watched:
            return
        spent, each = sum(self._goodput.seconds().values()), self.seconds_per_update(number)
        planned = self.config.training.num_updates
        length = affordable_updates(number, spent, each, budget, self.num_updates, planned)
        if length == self.num_updates:
            return
        expected = (spent + (self.num_updates - number) * each) / 60
        problem = (
            f"update {number}: {self.num_updates:,} updates will take {expected:.1f} minutes, not {budget / 60:.1f}"
        )
        if policy == "stretch":
            if abs(expected - self._said_minutes) > SAID_AGAIN * expected:
                self._said_minutes = expected
                say(f"{problem} (training.budget_policy=stretch)")
            return
        say(f"{problem}; the run now ends at update {length:,}, and its learning rate decays until then")
        self._counters.num_updates = length
        self._schedule = self.update.schedule(self.hyperparameters)

    def _signs(self) -> list[str]:
        """Signs that the model does not learn."""
        return signs_of(self.directory, self.config, self.num_updates)

    def _save(self, state: TrainState, score: float | None) -> None:
        """Starts to write a checkpoint, unless there is one of this update."""
        with self._clock.spend("checkpoint"):
            self._checkpoints.save(state, _progress(self._run, self._log.contents), score)
        self._run.callback.on_checkpoint(int(state.step), self.directory.checkpoints / str(int(state.step)))
        self._goodput.saved()
        self._goodput.write(int(state.step))

    def _explain_divergence(self, number: int, metrics: StepMetrics, state: TrainState) -> None:
        """Repeats update ``number``, whose batch and key follow from its number, and says where it went wrong."""
        mesh = self.update.mesh
        batch = put_batch(next(self.data.batches(number - 1)), mesh)
        key = state._replace(step=jnp.asarray(number - 1, state.step.dtype)).dropout_key()
        hyperparameters = put_hyperparameters(hyperparameters_of(self.config), mesh)
        where = find_nonfinite(self.task, state.params, batch, key, hyperparameters)
        raise TrainingDiverged(
            f"update {number}: loss {float(metrics.sums.loss):g}, gradient norm {float(metrics.gradient_norm):g}; first tensor "
            f"that is not finite: {where or 'none when the update was repeated'}. {self._remedy()}"
        )

    def _remedy(self) -> str:
        return (
            f"Checkpoints kept: {self._checkpoints.steps()}. Look at that tensor, or restart, in another --workdir, with a "
            "lower optimizer.learning_rate, with optimizer.clip_norm or, of word vectors, with fewer batching.rows"
        )


def _describe_run(run: PreparedRun, report: DataReport) -> None:
    """Writes settings, tokenizers, a report on the data, and who started the run where."""
    directory = run.directory
    directory.remove_partial_files()
    directory.outcome.unlink(missing_ok=True)
    write_json(directory.config, to_json(run.config))
    save_tokenizers(run.task.tokenizers, directory.tokenizer)
    write_json(directory.data_report, report.content)
    devices = [str(device) for device in run.update.mesh.devices.flat]
    parameters = count_parameters(run.update.state_shapes.params)
    directory.write_run(devices, run.config.seed, parameters, **run.initial.origin(), **run.origin)


def _progress(run: PreparedRun, logged: LogContents) -> Progress:
    """Metadata of a checkpoint: its origin, and what is needed to use it."""
    return {
        "config": to_json(run.config),
        "data": dict(run.task.identity),
        "tokenizer": tokenizers_to_json(run.task.tokenizers),
        "counters": run.counters.to_json(),
        "num_records": logged.num_records,
        "log_digest": logged.digest,
        "is_validation_due": run.is_validation_due,
    }
