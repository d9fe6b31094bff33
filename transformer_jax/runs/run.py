"""A run while it trains: its parts, which stay the same, its position, and its outcome."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.reader import Progress
from transformer_jax.config import ExperimentConfig, Hyperparameters, Metric, scheduled_hyperparameters_of, to_json
from transformer_jax.config.optimization import decays
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runs.goodput import Clock, Goodput
from transformer_jax.runs.learning_signs import LearningSigns
from transformer_jax.runs.metrics_log import MetricsLog
from transformer_jax.runs.trackers import Trackers
from transformer_jax.runtime.preemption import AgreedInterruption, Interruption
from transformer_jax.tasks.run_tokenizers import tokenizers_to_json
from transformer_jax.tasks.task import Evaluation, Task, TrainingData
from transformer_jax.training.statistics import join
from transformer_jax.training.step import StepMetrics
from transformer_jax.training.update import Update

Reason = Literal["interrupted", "finished", "stopped", "patience"]
"""The reason for the end of a run, in order of precedence."""
REASONS: tuple[str, ...] = get_args(Reason)
# Minimum validations of a shortened run, the last included.
MIN_VALIDATIONS = 2
# Maximum warm-up of a shortened run whose schedule has an end, as a share of its updates.
SHARE_OF_WARM_UP = 0.25


class TrainingDiverged(RuntimeError):
    """A loss or gradient was not finite. The message has the update and the tensor."""


class Outcome(NamedTuple):
    """Outcome of a run, as in ``outcome.json``.

    ``reason``: ``finished``, ``patience``, ``stopped`` (by a hook) or ``interrupted`` (by
    ``signal``). ``best``: the best validation of ``metric``, on ``basis``. ``time_spent``: a line
    of text. ``seconds``: of all starts of the run.
    """

    step: int
    reason: str
    best: float | None
    time_spent: str
    metric: str = ""
    signal: int = 0
    signs: tuple[str, ...] = ()
    basis: str = ""
    seconds: float = 0.0


@dataclass
class Counters:
    """Counters that are saved in every checkpoint.

    ``best``: the best value of the selection metric so far. ``loss``, ``nll``, ``correct``,
    ``tokens`` and ``extras`` (loss terms by name) are sums since the last line of the log,
    ``statistics`` ratios. ``skipped`` updates were not finite and changed nothing. ``num_updates``:
    the length of the run, which a hook may change. ``validated_at``: the update of the last
    validation, and ``basis`` its examples and search.
    """

    best: float | None = None
    evaluations_without_gain: int = 0
    loss: float = 0.0
    nll: float = 0.0
    correct: float = 0.0
    tokens: float = 0.0
    total_tokens: float = 0.0
    skipped: int = 0
    num_updates: int = 0
    validated_at: int = 0
    basis: str = ""
    extras: dict[str, float] = field(default_factory=dict)
    statistics: dict[str, list[float]] = field(default_factory=dict)

    def add(self, metrics: StepMetrics) -> None:
        """Add the metrics of one update. A skipped update is only counted."""
        if not metrics.finite:
            self.skipped += 1
            return
        for name in ("loss", "nll", "correct", "tokens"):
            setattr(self, name, getattr(self, name) + float(getattr(metrics.sums, name)))
        for name, value in metrics.sums.extras.items():
            self.extras[name] = self.extras.get(name, 0.0) + float(value)
        for name, ratios in metrics.sums.statistics.items():
            for path, ratio in ratios.items():
                key = f"{name}/{path}".removesuffix("/")
                before = [self.statistics[key]] if key in self.statistics else []
                self.statistics[key] = join(name, np.asarray([*before, ratio], np.float64)).tolist()
        self.total_tokens += float(metrics.sums.tokens)

    def take_means(self) -> dict[str, float]:
        """Return means per target token since the last call, and statistics, and reset them."""
        means = {f"train/{name}": over / under for name, (over, under) in self.statistics.items() if under}
        if self.tokens:
            sums = {"loss": self.loss, "nll": self.nll, "accuracy": self.correct, **self.extras}
            means = {f"train/{name}": value / self.tokens for name, value in sums.items()} | means
        if self.skipped:
            means["train/skipped_updates"] = float(self.skipped)
        self.loss = self.nll = self.correct = self.tokens = 0.0
        self.extras, self.statistics = {}, {}
        return means

    def add_validation(self, value: float, selection: Metric) -> bool:
        """Count a validation and return whether it reaches the best so far.

        Only a gain resets patience.
        """
        is_gain = not math.isnan(value) and (
            self.best is None or math.isnan(self.best) or selection.is_better(value, self.best)
        )
        self.best = value if is_gain else self.best
        self.evaluations_without_gain = 0 if is_gain else self.evaluations_without_gain + 1
        return value == self.best


@dataclass
class Results:
    """Results of the newest update.

    ``metrics``: on the host, None before the first update. ``logged``: everything recorded after
    the update, by name (``train/loss``, ``validation/bleu``). ``validated``: the validation alone,
    and ``score`` its selection metric. ``is_saved``: whether writing a checkpoint was started.
    """

    metrics: StepMetrics | None = None
    logged: dict[str, float] = field(default_factory=dict)
    validated: dict[str, float] = field(default_factory=dict)
    score: float | None = None
    is_saved: bool = False


@dataclass
class Position:
    """The position of a run, after update ``number``. Hooks read and write it.

    ``state``: the state after update ``number`` when a validation or a checkpoint is due, else one
    update ahead, because an update is dispatched before the metrics of the last one are read.
    ``is_validation_due``: a signal prevented the validation, and the resumed run begins with it.
    ``ends``: one of ``REASONS``, empty while the run continues. ``has_new_length``: a hook changed
    the length after the last checkpoint.
    """

    state: Any
    number: int
    counters: Counters
    is_validation_due: bool = False
    results: Results = field(default_factory=Results)
    ends: Reason | Literal[""] = ""
    has_new_length: bool = False

    @property
    def num_updates(self) -> int:
        """The last update: ``training.num_updates``, unless a hook changed it."""
        return self.counters.num_updates

    def change_length(self, num_updates: int) -> None:
        """End the run at update ``num_updates``. This update, or else the next one, is saved."""
        self.counters.num_updates, self.has_new_length = num_updates, True

    def stop(self, reason: Reason = "stopped") -> None:
        """End the run at this update if it is saved, else at the next one, which is then saved."""
        if not self.ends or REASONS.index(reason) < REASONS.index(self.ends):
            self.ends = reason

    def stop_if_over(self, config: ExperimentConfig) -> None:
        """Stop a run that made its updates, or whose validations no longer improve."""
        if self.number >= self.num_updates:
            self.stop("finished")
        elif 0 < config.training.patience <= self.counters.evaluations_without_gain:
            self.stop("patience")


def hyperparameters_of_length(config: ExperimentConfig, num_updates: int) -> Hyperparameters:
    """Return the hyperparameters of a run of this length, which may differ from its settings."""
    hyperparameters = scheduled_hyperparameters_of(config)
    if num_updates == config.training.num_updates:
        return hyperparameters
    if not decays(config.optimizer.schedule):
        return hyperparameters._replace(num_updates=float(num_updates))
    # A shortened run might end within its warm-up.
    warmup = min(hyperparameters.warmup_updates, max(SHARE_OF_WARM_UP * num_updates, 1.0))
    return hyperparameters._replace(num_updates=float(num_updates), warmup_updates=warmup)


def validation_interval(config: ExperimentConfig, num_updates: int) -> int:
    """Return the updates between validations. A shortened run has at least two validations."""
    every = config.training.evaluate_every
    return every if num_updates == config.training.num_updates else min(every, -(-num_updates // MIN_VALIDATIONS))


@dataclass(frozen=True)
class RunParts:
    """The parts of a run while it trains. This start begins after update ``first_update``."""

    config: ExperimentConfig
    directory: RunDirectory
    task: Task
    update: Update
    data: TrainingData
    checkpoints: Checkpoints
    clock: Clock
    goodput: Goodput
    log: MetricsLog
    trackers: Trackers
    signs: LearningSigns
    interruption: Interruption | AgreedInterruption
    first_update: int = 0

    def hyperparameters(self, num_updates: int) -> Hyperparameters:
        return hyperparameters_of_length(self.config, num_updates)

    def seconds_per_update(self, position: Position) -> float:
        """Return recent seconds per update, with validations and checkpoints but no compilation."""
        number, evaluate_every = position.number, validation_interval(self.config, position.num_updates)
        updates, saves = number - self.first_update, (evaluate_every, self.config.training.checkpoint_every)
        # A process that resumed just before a validation has paid for it in few updates.
        evaluation = self.clock.total(["evaluation"]) / max(updates, evaluate_every, 1)
        if not evaluation:
            evaluation = self.goodput.seconds()["evaluation"] / max(number, evaluate_every, 1)
        checkpoint = self.clock.total(["checkpoint"]) / max(updates, min(filter(None, saves)))
        return self.clock.recent_update_seconds() + evaluation + checkpoint

    def record(self, position: Position, metrics: dict[str, float]) -> None:
        """Write ``metrics`` of the newest update to the log and the trackers."""
        self.log.write(position.number, metrics)
        self.trackers.write(position.number, metrics)
        self.signs.add({"step": position.number, **metrics})
        position.results.logged |= metrics

    def score_line(self, evaluation: Evaluation) -> str:
        """Return the metrics of a validation in a line, first the one that selects checkpoints.

        For example ``BLEU 21.27 (96 of 1,014 sentences, greedy), chrF 45.30``. Perplexity shows the
        loss. Raises ConfigError when the evaluation lacks the selection metric.
        """
        first, values = self.config.selection, evaluation.metrics
        parts = (
            f"{metric.label} {metric.text(values[metric.name])}"
            for metric in self.config.metrics
            if metric != first and metric.name in values and metric.name != "loss"
        )
        return ", ".join([first.score(first.value_in(values), evaluation.basis), *parts])

    def progress(self, position: Position) -> Progress:
        """Return the metadata of a checkpoint.

        Settings, digests of the data, tokenizers, counters, and contents of the log.
        """
        logged = self.log.contents
        return {
            "config": to_json(self.config),
            "data": dict(self.task.identity),
            "tokenizer": tokenizers_to_json(self.task.tokenizers),
            "counters": asdict(position.counters),
            "num_records": logged.num_records,
            "log_digest": logged.digest,
            "is_validation_due": position.is_validation_due,
        }

    def finish(self, position: Position) -> Outcome:
        """Wait for the last checkpoint, then write and return the outcome."""
        with self.clock.spend("checkpoint"):
            self.checkpoints.wait()
        self.goodput.write(position.number)
        signal = self.interruption.number if position.ends == "interrupted" else 0
        signs = tuple(self.signs.sentences(position.num_updates))
        best, metric = position.counters.best, self.config.selection.key
        basis, seconds = position.counters.basis, round(sum(self.goodput.seconds().values()), 1)
        line = self.goodput.line()
        outcome = Outcome(position.number, position.ends, best, line, metric, signal, signs, basis, seconds)
        self.log.sync()
        self.directory.write_outcome(**outcome._asdict())
        return outcome


@contextmanager
def outcome_of_divergence(run: RunParts, position: Position) -> Iterator[None]:
    """Write the outcome of a run that diverges, once its checkpoints are on disk."""
    try:
        yield
    except TrainingDiverged as error:
        run.checkpoints.wait()
        run.directory.write_outcome(step=position.number, reason="diverged", problem=str(error))
        raise


Hook = Callable[[RunParts, Position], object]
"""Called after an update, callbacks also once before the first. Its result is ignored.

A hook with a method ``needs_state(run, position, number)`` is called after updates for which that
returns True, with their state, before a checkpoint.
"""
