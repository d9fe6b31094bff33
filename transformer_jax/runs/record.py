"""What is kept of one run: settings, log, checkpoints, validations, and where its time went; all of it but the updates."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict
from typing import NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.checkpoints.manager import Checkpoints, Progress
from transformer_jax.checkpoints.run_directory import RunDirectory, write_json
from transformer_jax.config import ConfigError, ExperimentConfig, hyperparameters_of, to_json
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.evaluation.report import EvaluationReport
from transformer_jax.runs.goodput import Goodput
from transformer_jax.runs.metrics_log import MetricsLog
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.beginning import Beginning
from transformer_jax.tasks.nonfinite import find_non_finite
from transformer_jax.tasks.run_tokenizers import tokenizers_to_json
from transformer_jax.tasks.translation import TranslationTask
from transformer_jax.training.counters import Counters, Stopwatch
from transformer_jax.training.sharding import put_batch, put_hyperparameters
from transformer_jax.training.state import TrainState, count_parameters
from transformer_jax.training.step import StepMetrics

DRY_RUN_SENTENCES = 8


class TrainingDiverged(RuntimeError):
    """A loss or gradient was not finite. The message names the update and the first tensor that was not."""


ShouldStop = Callable[[int, Mapping[str, float]], bool]
"""Called with the update and the metrics of every validation; True stops the run there."""

Say = Callable[[str], None]

Spend = Callable[[str], AbstractContextManager[None]]
"""``with spend(kind):`` attributes the wall time of the block to ``kind``."""


class Outcome(NamedTuple):
    """How a run ended: ``reason`` is ``finished``, ``patience``, ``judged`` or ``interrupted``; ``time_spent`` a line."""

    step: int
    reason: str
    best_bleu: float | None
    time_spent: str


class TrainingRecord:
    """The record of the run in the folder ``run``."""

    def __init__(
        self,
        config: ExperimentConfig,
        run: RunDirectory,
        task: TranslationTask,
        mesh: Mesh,
        should_stop: ShouldStop | None = None,
    ) -> None:
        self.config, self.run, self.task, self.mesh = config, run, task, mesh
        self.first = 0
        self._should_stop = should_stop
        self._is_stopped = False
        self._schedule = task.update.schedule(hyperparameters_of(config))
        self._counters = Counters()
        self._watch = Stopwatch()
        training = config.training
        self._checkpoints = Checkpoints(run.checkpoints, keep_last=training.keep_last, keep_best=training.keep_best)
        self._closing = ExitStack()
        self._closing.enter_context(closing(self._checkpoints))
        self._is_new = not self._checkpoints.steps()
        self._restored: TrainState | None = None
        self._beginning = Beginning(config, task.update, task.tokenizers, is_resumed=not self._is_new)
        self._goodput: Goodput
        self._log: MetricsLog

    def restore(self) -> list[str]:
        """Restores the newest checkpoint, if there is one: what is wrong with newer ones."""
        if self._is_new:
            return []
        self._restored, progress, complaints = self._checkpoints.restore_newest(self.task.update.state_shapes)
        self._require_same_data(progress["data"])
        self._counters = Counters(**progress["counters"])
        self.first = int(self._restored.step)
        return complaints

    def open(self, started: float | None = None, runs: int = 1) -> list[str]:
        """Writes down what the run is, once it was restored; returns what a reader should know of it.

        ``started``: when this start of it did, by ``time.perf_counter``, for the account of its time, which is that of so many
        ``runs`` at once.
        """
        with first_goes_first():
            self._goodput = Goodput(self.run.goodput, self.first, started, runs)
            # Only now: a command that is refused leaves settings and tokenizers as they were.
            self._describe_run()
            self._log = self._closing.enter_context(closing(MetricsLog(self.run.metrics, self.first)))
        resumed = [f"resumed at update {self.first}"] if self.first else []
        return [*self._beginning.notes(), *resumed]

    def close(self) -> None:
        """Returns when everything is on disk; does nothing the second time."""
        self._closing.close()

    def begin(self, say: Say, spend: Spend) -> TrainState:
        """The state to begin with, the restored one or the first; before the first update after a dry run.

        That is to do once all that is done on the way, so that nothing of it fails first after hours.
        """
        state, self._restored = self._restored or self._beginning.state(), None
        if self.first:
            return state
        done = "saving done"
        if self.config.training.evaluate_every:
            perplexity = self._evaluate(state, DRY_RUN_SENTENCES, 0, spend).perplexity
            done = f"evaluation, decoding and saving done (untrained: perplexity {perplexity:,.0f})"
        self._save(state, None, spend)
        self._checkpoints.wait()
        say(f"dry run of {done}")
        return state

    def turn_to_updates(self) -> None:
        """From now on time is spent on updates, unless ``spend`` says otherwise."""
        self._goodput.turn_to("step")
        self._watch.restart()

    @contextmanager
    def spend(self, kind: str) -> Iterator[None]:
        """What happens inside is ``kind``; waiting for data belongs to the speed of training, nothing else does."""
        with self._goodput.spend(kind), nullcontext() if kind == "data_wait" else self._watch.pause():
            yield

    def paused(self) -> AbstractContextManager[None]:
        """What happens inside is not part of the speed."""
        return self._watch.pause()

    def share(self, runs: int) -> None:
        """From now on the time is that of so many runs: this one counts its part."""
        self._goodput.share_with(runs)

    def add(self, step: int, metrics: StepMetrics, state: Callable[[], TrainState]) -> tuple[float, float] | None:
        """Counts what update ``step`` reported; every ``log_every`` updates logs it: loss and target tokens per second.

        Raises TrainingDiverged when loss or gradient were not finite, and the ``state`` after them says where.
        """
        if not metrics.finite:
            self._explain_divergence(step, metrics, state())
        self._counters.add(metrics)
        self._watch.tokens += float(metrics.sums.tokens)
        if step % self.config.training.log_every:
            return None
        rate = self._watch.rate()
        window = self._counters.take_window()
        told = window | {
            "train/gradient_norm": float(metrics.gradient_norm),
            "train/learning_rate": float(self._schedule(step)),
            "train/target_tokens": self._counters.total_tokens,
            "speed/target_tokens_per_second": rate,
        }
        self._log.write(step, told)
        self._goodput.write(step)
        self._watch.restart()
        return window["train/loss"], rate

    def is_boundary(self, step: int) -> bool:
        """Whether ``step`` ends with a validation, a checkpoint, or the training."""
        training = self.config.training
        return self._is_validated(step) or step % training.checkpoint_every == 0 or step == training.num_updates

    def at_boundary(self, step: int, state: TrainState, say: Say, spend: Spend) -> None:
        """Validates ``state`` if it is time to, and saves it.

        Raises TrainingDiverged when the validation loss is not finite.
        """
        bleu = self._validate(step, state, say, spend) if self._is_validated(step) else None
        self._log.sync()
        self._save(state, bleu, spend)

    def reason_to_end(self, step: int) -> str | None:
        """Why there is no update after ``step``, None when there is one."""
        if step >= self.config.training.num_updates:
            return "finished"
        if self._is_stopped:
            return "judged"
        patience = self.config.training.patience
        return "patience" if patience and self._counters.evaluations_without_gain >= patience else None

    def conclude(self, step: int, reason: str) -> Outcome:
        """Writes how the run ended, once the record is closed."""
        self._goodput.write(step)
        outcome = Outcome(step, reason, self._counters.best_bleu, self._goodput.line())
        write_json(self.run.outcome, outcome._asdict())
        return outcome

    def _is_validated(self, step: int) -> bool:
        """Whether the run itself decodes and scores after ``step``."""
        training = self.config.training
        return training.evaluate_every > 0 and (step % training.evaluate_every == 0 or step == training.num_updates)

    def _validate(self, step: int, state: TrainState, say: Say, spend: Spend) -> float:
        report = self._evaluate(state, self.config.training.validation_sentences, step, spend)
        found = {f"validation/{name}": value for name, value in report.headline().items()}
        self._log.write(step, found)
        if not math.isfinite(report.loss):
            raise TrainingDiverged(f"update {step}: the validation loss is {report.loss}; {self._remedy()}")
        is_best = self._counters.note_score(report.scores.bleu)
        best = "the best so far" if is_best else f"best {self._counters.best_bleu:.2f}"
        say(f"update {step}: validation {report.line()} ({best})")
        self._is_stopped = self._should_stop is not None and self._should_stop(step, found)
        return report.scores.bleu

    def _evaluate(self, state: TrainState, limit: int, step: int, spend: Spend) -> EvaluationReport:
        with spend("evaluation"):
            return self.task.evaluate(state.params, "validation", limit=limit, step=step)[0]

    def _save(self, state: TrainState, bleu: float | None, spend: Spend) -> None:
        """Starts to write a checkpoint, unless there is one of this update."""
        with spend("checkpoint"):
            self._checkpoints.save(state, {**self._identity(), "counters": asdict(self._counters)}, bleu)
        self._goodput.saved()
        self._goodput.write(int(state.step))

    def _describe_run(self) -> None:
        """Writes what the run is: settings, tokenizers, a report on the data, and who started it where."""
        self.run.outcome.unlink(missing_ok=True)
        write_json(self.run.config, to_json(self.config))
        save_tokenizers(self.task.tokenizers, self.run.tokenizer)
        write_json(self.run.data_report, self.task.data_report())
        devices = [str(device) for device in self.mesh.devices.flat]
        parameters = count_parameters(self.task.update.state_shapes.params)
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

    def _explain_divergence(self, step: int, metrics: StepMetrics, state: TrainState) -> None:
        """Repeats update ``step``, whose batch and key follow from its number, and says where it went wrong."""
        batch: Batch = put_batch(next(self.task.training_batches(step - 1)), self.mesh)
        key = state._replace(step=jnp.asarray(step - 1, state.step.dtype)).dropout_key()
        hyperparameters = put_hyperparameters(hyperparameters_of(self.config), self.mesh)
        where = find_non_finite(self.task, state.params, batch, key, hyperparameters)
        raise TrainingDiverged(
            f"update {step}: loss {float(metrics.sums.loss):g}, gradient norm {float(metrics.gradient_norm):g}; first tensor "
            f"that is not finite: {where or 'none when the update was repeated'}. {self._remedy()}"
        )

    def _remedy(self) -> str:
        return (
            f"Checkpoints kept: {self._checkpoints.steps()}. Look at that tensor, or start anew, in another --workdir, with a "
            "lower optimizer.learning_rate or with optimizer.clip_norm"
        )
