"""The training loop: the only place where data, step, checkpoints and evaluation meet."""

import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints import Checkpoints, Progress
from transformer_jax.config import ExperimentConfig
from transformer_jax.evaluation.report import EvaluationReport
from transformer_jax.reporting.metrics_log import MetricsLog
from transformer_jax.reporting.progress import TrainingProgress
from transformer_jax.run_directory import RunDirectory
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.translation import TranslationTask
from transformer_jax.training.finiteness import first_non_finite
from transformer_jax.training.optimizers import make_optimizer
from transformer_jax.training.schedules import make_schedule
from transformer_jax.training.sharding import put_batch, require_rows_divide
from transformer_jax.training.state import TrainState, count_parameters
from transformer_jax.training.step import StepMetrics, compile_train_step, initial_state, make_train_step

REHEARSAL_SENTENCES = 8


class TrainingDiverged(RuntimeError):
    """A loss or gradient was not finite. The message names the update and the first tensor that was not."""


class Outcome(NamedTuple):
    """How a training ended: ``reason`` is ``finished``, ``patience`` or ``interrupted``."""

    step: int
    reason: str
    best_bleu: float | None


@dataclass
class Counters:
    """What the loop remembers between updates; travels in every checkpoint, so that a resumed run forgets nothing.

    ``loss``, ``nll``, ``correct`` and ``tokens`` are sums since the last line of the log.
    """

    best_bleu: float | None = None
    evaluations_without_gain: int = 0
    loss: float = 0.0
    nll: float = 0.0
    correct: float = 0.0
    tokens: float = 0.0
    total_tokens: float = 0.0

    def add(self, metrics: StepMetrics) -> None:
        """Adds what one update reported."""
        for name, value in metrics.sums._asdict().items():
            setattr(self, name, getattr(self, name) + float(value))
        self.total_tokens += float(metrics.sums.tokens)

    def take_window(self) -> dict[str, float]:
        """Means since the last call, per target token."""
        means = {
            "train/loss": self.loss / self.tokens,
            "train/nll": self.nll / self.tokens,
            "train/accuracy": self.correct / self.tokens,
        }
        self.loss = self.nll = self.correct = self.tokens = 0.0
        return means

    def judge(self, bleu: float) -> bool:
        """Counts an evaluation; True when it is the best so far."""
        is_best = self.best_bleu is None or bleu > self.best_bleu
        self.best_bleu = bleu if is_best else self.best_bleu
        self.evaluations_without_gain = 0 if is_best else self.evaluations_without_gain + 1
        return is_best


@dataclass
class Stopwatch:
    """Tokens per second of training alone: evaluation and saving do not count."""

    started: float = field(default_factory=time.perf_counter)
    tokens: float = 0.0
    paused: float = 0.0

    def restart(self) -> None:
        """Counts from now."""
        self.started, self.tokens, self.paused = time.perf_counter(), 0.0, 0.0

    def rate(self) -> float:
        """Target tokens per second since the last ``restart``."""
        return self.tokens / max(time.perf_counter() - self.started - self.paused, 1e-9)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leaves out what happens inside."""
        began = time.perf_counter()
        yield
        self.paused += time.perf_counter() - began


class Trainer:
    """One training run, from wherever its newest checkpoint is to its end."""

    def __init__(
        self, config: ExperimentConfig, run: RunDirectory, task: TranslationTask, mesh: Mesh, identity: Progress
    ) -> None:
        self.config, self.run, self.task = config, run, task
        self._identity = identity
        self.mesh = mesh
        require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, self.mesh)
        self._schedule = make_schedule(config.optimizer, config.model.d_model, config.training.num_updates)
        self._optimizer = make_optimizer(config.optimizer, self._schedule)
        step = make_train_step(task.loss, self._optimizer, config.batching.accumulation_steps)
        self.state = initial_state(task.init_params, self._optimizer, config.seed, self.mesh)
        self._step = compile_train_step(step, self.state, self.mesh)
        self.counters = Counters()
        training = config.training
        self._checkpoints = Checkpoints(run.checkpoints, keep_last=training.keep_last, keep_best=training.keep_best)
        self._interrupted: signal.Signals | None = None

    def train(self) -> Outcome:
        """Trains to the end, to the end of patience, or until SIGINT or SIGTERM; then everything is on disk.

        Raises TrainingDiverged when the loss or the gradient is not finite; the checkpoints stay as they were.
        """
        complaints = self._restore()
        first = int(self.state.step)
        devices = [str(device) for device in self.mesh.devices.flat]
        self.run.write_run(devices, self.config.seed, count_parameters(self.state.params))
        log = MetricsLog(self.run.metrics, first)
        progress = TrainingProgress(self.config.training.num_updates, first)
        with log, closing(self._checkpoints), progress, self._stopped_by_signals():
            for complaint in complaints:
                progress.say(complaint)
            if first:
                progress.say(f"resumed at update {first}")
            else:
                self._rehearse(progress)
            reason = self._run(log, progress)
            self._save(None)
        return Outcome(int(self.state.step), reason, self.counters.best_bleu)

    def _run(self, log: MetricsLog, progress: TrainingProgress) -> str:
        """Dispatches update n, then reads what update n - 1 reported, so that the device never waits for the reader."""
        training = self.config.training
        step = int(self.state.step)
        if self._is_out_of_patience():
            return "patience"
        if step >= training.num_updates:
            return "finished"
        batches = self.task.training_batches(step)
        watch = Stopwatch()
        pending: StepMetrics | None = None
        while step < training.num_updates:
            batch = put_batch(next(batches), self.mesh)
            self.state, metrics = self._step(self.state, batch)
            if pending is not None:
                self._record(step, pending, log, progress, watch)
            step, pending = step + 1, metrics
            is_boundary = step % training.evaluate_every == 0 or step % training.checkpoint_every == 0
            if is_boundary or self._interrupted or step == training.num_updates:
                self._record(step, pending, log, progress, watch)
                pending = None
                with watch.pause():
                    self._at_boundary(step, log, progress)
            if self._interrupted:
                return "interrupted"
            if self._is_out_of_patience():
                return "patience"
        return "finished"

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
            watch.restart()

    def _at_boundary(self, step: int, log: MetricsLog, progress: TrainingProgress) -> None:
        training = self.config.training
        bleu = None
        if step % training.evaluate_every == 0 or step == training.num_updates:
            report = self._evaluate(training.validation_sentences, step)
            bleu = report.scores.bleu
            log.write(step, {f"validation/{name}": value for name, value in headline(report).items()})
            is_best = self.counters.judge(bleu)
            best = "the best so far" if is_best else f"best {self.counters.best_bleu:.2f}"
            progress.say(f"update {step}: validation {describe(report)} ({best})")
        log.sync()
        self._save(bleu)

    def _evaluate(self, limit: int, step: int) -> EvaluationReport:
        return self.task.evaluate(self.state.params, "validation", limit=limit, step=step)[0]

    def _rehearse(self, progress: TrainingProgress) -> None:
        """Evaluates, decodes and saves once before any time is spent, so that none of them fails first after hours."""
        report = self._evaluate(REHEARSAL_SENTENCES, step=0)
        self._save(None)
        self._checkpoints.wait()
        progress.say(
            f"rehearsal of evaluation, search and saving done (untrained: perplexity {report.perplexity:,.0f})"
        )

    def _restore(self) -> list[str]:
        if not self._checkpoints.steps():
            return []
        self.state, progress, complaints = self._checkpoints.restore_newest(self.state)
        self.counters = Counters(**progress["counters"])
        return complaints

    def _save(self, bleu: float | None) -> None:
        self._checkpoints.save(self.state, {**self._identity, "counters": asdict(self.counters)}, bleu)

    def _is_out_of_patience(self) -> bool:
        patience = self.config.training.patience
        return bool(patience) and self.counters.evaluations_without_gain >= patience

    def _explain_divergence(self, step: int, metrics: StepMetrics) -> None:
        """Repeats update ``step`` in slow motion. The parameters are still finite: the update was withheld."""
        state: TrainState = self.state
        batch: Batch = put_batch(next(self.task.training_batches(step - 1)), self.mesh)
        key = state._replace(step=state.step * 0 + step - 1).dropout_key()
        activations: PyTree = self.task.activations(state.params, batch, key)
        gradient = jax.grad(lambda params: self.task.loss(params, batch, key).loss)(state.params)
        where = (
            first_non_finite({"parameters": state.params})
            or first_non_finite({"activations": activations})
            or first_non_finite({"gradient": gradient})
            or "only in the sum over the batch"
        )
        kept = self._checkpoints.steps()
        raise TrainingDiverged(
            f"update {step}: loss {float(metrics.sums.loss):g}, gradient norm {float(metrics.gradient_norm):g}; first tensor "
            f"that is not finite: {where}. Checkpoints kept: {kept}. Lower optimizer.learning_rate, set "
            "optimizer.clip_norm, or look at that tensor"
        )

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM let the current update finish and everything be saved; a second one ends at once."""
        handled = signal.SIGINT, signal.SIGTERM

        def note(number: int, frame: object) -> None:
            self._interrupted = signal.Signals(number)
            for each in handled:
                signal.signal(each, signal.SIG_DFL)

        previous = {each: signal.signal(each, note) for each in handled}
        try:
            yield
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)


def headline(report: EvaluationReport) -> dict[str, float]:
    """The numbers of a report that belong into a log."""
    scores = report.scores
    return {
        "bleu": scores.bleu,
        "chrf": scores.chrf,
        "loss": report.loss,
        "perplexity": report.perplexity,
        "search_tokens_per_second": report.tokens_per_second,
    }


def describe(report: EvaluationReport) -> str:
    """The numbers of a report that belong into a line."""
    return f"BLEU {report.scores.bleu:.2f}, perplexity {report.perplexity:.3f}"
