"""The training loop: the only place where data, step, checkpoints and evaluation meet."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.checkpoints import Checkpoints, Progress
from transformer_jax.config import ConfigError, ExperimentConfig, numbers_of, to_json
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.evaluation.report import EvaluationReport
from transformer_jax.interruption import interruption
from transformer_jax.processes import first_goes_first, is_first
from transformer_jax.reporting.goodput import Goodput
from transformer_jax.reporting.metrics_log import MetricsLog
from transformer_jax.reporting.profiling import ProfiledSteps, Profiler
from transformer_jax.reporting.progress import TrainingProgress
from transformer_jax.run_directory import RunDirectory, write_json
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.beginning import Beginning
from transformer_jax.tasks.divergence import find_non_finite
from transformer_jax.tasks.run_tokenizers import tokenizers_to_json
from transformer_jax.tasks.translation import TranslationTask
from transformer_jax.training.compiled_step import CompiledStep
from transformer_jax.training.counters import Counters, Stopwatch
from transformer_jax.training.sharding import put_batch, put_numbers
from transformer_jax.training.state import TrainState, count_parameters
from transformer_jax.training.step import StepMetrics

REHEARSAL_SENTENCES = 8


class TrainingDiverged(RuntimeError):
    """A loss or gradient was not finite. The message names the update and the first tensor that was not."""


Judge = Callable[[int, Mapping[str, float]], bool]
"""Told what every validation found, by update and under its name in the log; True ends the training there."""


class Outcome(NamedTuple):
    """How a training ended: ``reason`` is ``finished``, ``patience``, ``judged`` or ``interrupted``; ``time_spent`` a line.

    ``is_asked_to_stop``: a signal came, though perhaps too late for an update.
    """

    step: int
    reason: str
    best_bleu: float | None
    time_spent: str
    is_asked_to_stop: bool = False


class Trainer:
    """One training run, from wherever its newest checkpoint is to its end."""

    def __init__(
        self,
        config: ExperimentConfig,
        run: RunDirectory,
        task: TranslationTask,
        mesh: Mesh,
        profiled: ProfiledSteps | None = None,
        judge: Judge | None = None,
    ) -> None:
        self.config, self.run, self.task, self.mesh = config, run, task, mesh
        self._judge = judge
        self._is_judged = False
        self.update = task.update
        self._schedule = self.update.schedule(numbers_of(config))
        self._numbers = put_numbers(numbers_of(config), mesh)
        self.state: TrainState
        self.counters = Counters()
        training = config.training
        self._checkpoints = Checkpoints(run.checkpoints, keep_last=training.keep_last, keep_best=training.keep_best)
        is_resumed = bool(self._checkpoints.steps())
        self._beginning = Beginning(config, self.update, task.tokenizers, is_resumed=is_resumed)
        self._profiler = Profiler(profiled, run.profile)
        self._goodput: Goodput
        self._interruption = interruption()
        self._is_alone = jax.process_count() == 1

    def train(self, started: float | None = None) -> Outcome:
        """Trains to the end, to the end of patience, or until SIGINT or SIGTERM; then everything is on disk.

        ``started``: when the command did, by ``time.perf_counter``, for the account of its time.
        Raises TrainingDiverged when the loss or the gradient is not finite; the checkpoints stay as they were.
        """
        first, complaints = self._restore()
        with first_goes_first():
            self._goodput = Goodput(self.run.goodput, first, started)
            # Only now: a command that is refused leaves settings and tokenizers as they were.
            self._describe_run()
            log = MetricsLog(self.run.metrics, first)
        progress = TrainingProgress(self.config.training.num_updates, first, is_quiet=not is_first())
        with log, closing(self._checkpoints), progress, self._profiler, self._interruption:
            for note in [*complaints, *self._beginning.notes()]:
                progress.say(note)
            if first:
                progress.say(f"resumed at update {first}")
            reason = self._reason_to_end(first) or self._prepare_and_run(first, log, progress)
            self._save(None)
        outcome = Outcome(
            int(self.state.step), reason, self.counters.best_bleu, self._goodput.line(), self._interruption.is_asked
        )
        write_json(self.run.outcome, outcome._asdict())
        return outcome

    def _prepare_and_run(self, first: int, log: MetricsLog, progress: TrainingProgress) -> str:
        """Compiles the step in the background while parameters are made and evaluation, search and saving are rehearsed."""
        compiled = CompiledStep(self.update.lower, self.task.batch_shapes(first))
        batches = self.task.training_batches(first)
        with closing(compiled):
            if not self._checkpoints.steps():
                self.state = self._beginning.state()
            if first == 0:
                self._rehearse(progress)
            return self._run(compiled, batches, log, progress)

    def _run(
        self, compiled: CompiledStep, batches: Iterator[Batch], log: MetricsLog, progress: TrainingProgress
    ) -> str:
        """Dispatches update n, then reads what update n - 1 reported, so that the device never waits for the reader."""
        training = self.config.training
        step = int(self.state.step)
        watch = Stopwatch()
        pending: StepMetrics | None = None
        self._goodput.turn_to("step")
        while True:
            with self._goodput.spend("data_wait"):
                rows = next(batches)
            batch = put_batch(rows, self.mesh)
            # What one process reads early the others must too, in case it says that the training diverged.
            if pending is not None and self._is_alone and not compiled.is_ready(batch):
                self._record(step, pending, log, progress, watch)
                pending = None
            with watch.pause(), self._goodput.spend("compile"):
                if not compiled.is_announced(batch):
                    shapes = f"{batch.source.ids.shape} and {batch.target.ids.shape}"
                    progress.say(
                        f"update {step + 1}: compiling once more, for a batch of {shapes} that was not planned"
                    )
                train_step = compiled.for_batch(batch)
            self._profiler.before(step + 1)
            self.state, metrics = train_step(self.state, batch, self._numbers)
            if pending is not None:
                self._record(step, pending, log, progress, watch)
            step, pending = step + 1, metrics
            is_boundary = self._is_validated(step) or step % training.checkpoint_every == 0
            if self._profiler.wants(step):
                jax.block_until_ready(self.state)
                self._profiler.stop()
            interrupted = self._interruption.stops_after(step)
            if is_boundary or interrupted or step == training.num_updates:
                self._record(step, pending, log, progress, watch)
                pending = None
                with watch.pause():
                    self._at_boundary(step, log, progress)
                if reason := "interrupted" if interrupted else self._reason_to_end(step):
                    return reason

    def _reason_to_end(self, step: int) -> str | None:
        """Why there is no update after ``step``, None when there is one."""
        if step >= self.config.training.num_updates:
            return "finished"
        if self._is_judged:
            return "judged"
        patience = self.config.training.patience
        return "patience" if patience and self.counters.evaluations_without_gain >= patience else None

    def _record(
        self, step: int, metrics: StepMetrics, log: MetricsLog, progress: TrainingProgress, watch: Stopwatch
    ) -> None:
        """Reads what update ``step`` reported; every ``log_every`` updates tells it."""
        metrics = jax.device_get(metrics)
        if not metrics.finite:
            self._explain_divergence(step, metrics)
        self.counters.add(metrics)
        watch.tokens += float(metrics.sums.tokens)
        progress.advance(step)
        if step % self.config.training.log_every == 0:
            rate = watch.rate()
            window = self.counters.take_window()
            progress.show(step, window["train/loss"], rate)
            window |= {
                "train/gradient_norm": float(metrics.gradient_norm),
                "train/learning_rate": float(self._schedule(step)),
                "train/target_tokens": self.counters.total_tokens,
                "speed/target_tokens_per_second": rate,
            }
            log.write(step, window)
            self._goodput.write(step)
            watch.restart()

    def _is_validated(self, step: int) -> bool:
        """Whether the training itself searches and scores after ``step``."""
        training = self.config.training
        return training.evaluate_every > 0 and (step % training.evaluate_every == 0 or step == training.num_updates)

    def _at_boundary(self, step: int, log: MetricsLog, progress: TrainingProgress) -> None:
        bleu = None
        if self._is_validated(step):
            report = self._evaluate(self.config.training.validation_sentences, step)
            bleu = report.scores.bleu
            found = {f"validation/{name}": value for name, value in report.headline().items()}
            log.write(step, found)
            if not math.isfinite(report.loss):
                raise TrainingDiverged(f"update {step}: the validation loss is {report.loss}; {self._remedy()}")
            is_best = self.counters.judge(bleu)
            best = "the best so far" if is_best else f"best {self.counters.best_bleu:.2f}"
            progress.say(f"update {step}: validation {report.line()} ({best})")
            self._is_judged = self._judge is not None and self._judge(step, found)
        log.sync()
        self._save(bleu)

    def _evaluate(self, limit: int, step: int) -> EvaluationReport:
        with self._goodput.spend("evaluation"):
            return self.task.evaluate(self.state.params, "validation", limit=limit, step=step)[0]

    def _rehearse(self, progress: TrainingProgress) -> None:
        """Does once, before any time is spent, all that is done on the way, so that nothing of it fails first after hours."""
        done = "saving done"
        if self.config.training.evaluate_every:
            perplexity = self._evaluate(REHEARSAL_SENTENCES, step=0).perplexity
            done = f"evaluation, search and saving done (untrained: perplexity {perplexity:,.0f})"
        self._save(None)
        self._checkpoints.wait()
        progress.say(f"rehearsal of {done}")

    def _restore(self) -> tuple[int, list[str]]:
        """Takes up the newest checkpoint, if there is one: the updates it has, and what is wrong with newer ones."""
        if not self._checkpoints.steps():
            return 0, []
        self.state, progress, complaints = self._checkpoints.restore_newest(self.update.state_shapes)
        self._require_same_data(progress["data"])
        self.counters = Counters(**progress["counters"])
        return int(self.state.step), complaints

    def _describe_run(self) -> None:
        """Writes what the run is: settings, tokenizers, a report on the data, and who started it where."""
        self.run.outcome.unlink(missing_ok=True)
        write_json(self.run.config, to_json(self.config))
        save_tokenizers(self.task.tokenizers, self.run.tokenizer)
        write_json(self.run.data_report, self.task.data_report())
        devices = [str(device) for device in self.mesh.devices.flat]
        parameters = count_parameters(self.update.state_shapes.params)
        self.run.write_run(devices, self.config.seed, parameters, **self._beginning.origin())

    def _identity(self) -> Progress:
        """What a checkpoint says about where it comes from, and needs to be of use."""
        tokenizer = tokenizers_to_json(self.task.tokenizers)
        return {"config": to_json(self.config), "data": self.task.data_identity, "tokenizer": tokenizer}

    def _require_same_data(self, saved: dict[str, str]) -> None:
        for name, digest in self.task.data_identity.items():
            if saved[name] != digest:
                raise ConfigError(
                    f"--workdir: {self.run.path}: the {name} changed since its checkpoints were written; use another "
                    "folder, or the data they were trained on"
                )

    def _save(self, bleu: float | None) -> None:
        with self._goodput.spend("checkpoint"):
            self._checkpoints.save(self.state, {**self._identity(), "counters": asdict(self.counters)}, bleu)
        self._goodput.saved()
        self._goodput.write(int(self.state.step))

    def _explain_divergence(self, step: int, metrics: StepMetrics) -> None:
        """Repeats update ``step``, whose batch and key follow from its number, and says where it went wrong."""
        batch: Batch = put_batch(next(self.task.training_batches(step - 1)), self.mesh)
        key = self.state._replace(step=jnp.asarray(step - 1, self.state.step.dtype)).dropout_key()
        where = find_non_finite(self.task, self.state.params, batch, key, self._numbers)
        raise TrainingDiverged(
            f"update {step}: loss {float(metrics.sums.loss):g}, gradient norm {float(metrics.gradient_norm):g}; first tensor "
            f"that is not finite: {where or 'none when the update was repeated'}. {self._remedy()}"
        )

    def _remedy(self) -> str:
        return (
            f"Checkpoints kept: {self._checkpoints.steps()}. Look at that tensor, or start anew, in another --workdir, with a "
            "lower optimizer.learning_rate or with optimizer.clip_norm"
        )
