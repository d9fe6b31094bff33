"""A run while it trains: its parts, position, counters and outcome."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints, Progress
from transformer_jax.config import ExperimentConfig, Hyperparameters, Metric, hyperparameters_of, to_json
from transformer_jax.config.optimization import ENDLESS_SCHEDULES
from transformer_jax.runs.goodput import TRAINING, Clock, Goodput
from transformer_jax.runs.learning_signs import LearningSigns
from transformer_jax.runs.metrics_log import MetricsLog
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runs.trackers import Trackers
from transformer_jax.runtime.preemption import AgreedInterruption, Interruption
from transformer_jax.tasks.run_tokenizers import tokenizers_to_json
from transformer_jax.tasks.task import Task, TrainingData
from transformer_jax.training.statistics import join
from transformer_jax.training.step import StepMetrics
from transformer_jax.training.update import Update

# Seconds between estimates of the end of a run with a budget; at most this share of the budget.
SECONDS_OF_AN_ESTIMATE, SHARE_OF_AN_ESTIMATE = 60.0, 0.1
# Maximum warm-up of a shortened run whose schedule has an end, as a share of its updates.
SHARE_OF_WARM_UP = 0.25


class TrainingDiverged(RuntimeError):
    """A loss or gradient was not finite. The message names the update and the first tensor that was not finite."""


class Outcome(NamedTuple):
    """Outcome of a run, as in ``outcome.json``.

    ``reason``: ``finished``, ``patience``, ``stopped`` (by a hook) or ``interrupted`` (by ``signal``). ``best``: the best
    validation of ``metric``. ``time_spent``: a line of text. ``signs``: signs that the model does not learn.
    """

    step: int
    reason: str
    best: float | None
    time_spent: str
    metric: str = ""
    signal: int = 0
    signs: tuple[str, ...] = ()


@dataclass
class Counters:
    """Counters that are saved in every checkpoint, so that a resumed run has them.

    ``best`` is the best value of the selection metric so far. ``loss``, ``nll``, ``correct`` and ``tokens`` are sums since the
    last line of the log, ``extras`` of loss terms by name, ``statistics`` ratios by name. ``skipped`` updates were not finite
    and changed nothing. ``num_updates``: the length of a run that was shortened to its budget, 0 while it is
    ``training.num_updates``.
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
    extras: dict[str, float] = field(default_factory=dict)
    statistics: dict[str, list[float]] = field(default_factory=dict)

    def add(self, metrics: StepMetrics) -> None:
        """Adds the metrics of one update; of a skipped one, only the count."""
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
        """Means per target token since the last call, and statistics; none where all updates since were skipped."""
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
        """Counts a validation; True if it equals or exceeds the best. Only a gain resets patience."""
        is_gain = not math.isnan(value) and (
            self.best is None or math.isnan(self.best) or selection.is_better(value, self.best)
        )
        self.best = value if is_gain else self.best
        self.evaluations_without_gain = 0 if is_gain else self.evaluations_without_gain + 1
        return value == self.best


@dataclass
class TrainingRun:
    """A run while it trains: its parts, its position, and the results of the newest update, which hooks read and write.

    Hooks are called after update ``number``, whose ``metrics`` are on the host (None before the first update). ``state`` is
    the state after update ``number`` where a validation or a checkpoint is due; elsewhere it is one update ahead, because an
    update is dispatched before the metrics of the previous one are read.
    ``logged``: everything recorded after update ``number``, by name (``train/loss``, ``validation/bleu``). ``validated``: the
    validation alone. ``score``: its value of the selection metric. ``is_saved``: whether writing a checkpoint was started.
    ``is_validation_due``: a signal prevented the validation, and the resumed run begins with it. ``estimated_at``: time in
    updates at the last estimate of the end. ``has_new_length``: the estimate after update ``number`` moved the end.
    """

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
    counters: Counters = field(default_factory=Counters)
    is_validation_due: bool = False
    state: Any = None
    number: int = 0
    metrics: StepMetrics | None = None
    logged: dict[str, float] = field(default_factory=dict)
    validated: dict[str, float] = field(default_factory=dict)
    score: float | None = None
    is_saved: bool = False
    estimated_at: float = 0.0
    is_estimate_due: bool = False
    has_new_length: bool = False
    is_interrupted: bool = False
    is_stopped: bool = False

    @property
    def num_updates(self) -> int:
        """The update at which the run ends: as configured, or earlier if its time budget shortened it."""
        return self.counters.num_updates or self.config.training.num_updates

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters of the next updates."""
        found = hyperparameters_of(self.config)
        if self.num_updates == self.config.training.num_updates:
            return found
        if self.config.optimizer.schedule in ENDLESS_SCHEDULES:
            return found._replace(num_updates=float(self.num_updates))
        # A shortened run might end within its warm-up.
        warmup = min(found.warmup_updates, max(SHARE_OF_WARM_UP * self.num_updates, 1.0))
        return found._replace(num_updates=float(self.num_updates), warmup_updates=warmup)

    @property
    def has_budget(self) -> bool:
        """Whether the run must fit into a budget of time: not one of several processes, whose clocks differ."""
        return self.config.training.budget_seconds > 0 and jax.process_count() == 1

    @property
    def evaluated_params(self) -> PyTree:
        """The parameters to evaluate: from ``state``, or their average over updates."""
        return self.update.evaluation_params(self.state)

    @property
    def seconds_per_update(self) -> float:
        """Recent seconds of this process for an update with its share of validations and checkpoints, without compilation."""
        training, made = self.config.training, self.number - self.first_update
        saves = (training.evaluate_every, training.checkpoint_every)
        # A process that resumed just before a validation has paid for it in few updates.
        evaluation = self.clock.total(["evaluation"]) / max(made, training.evaluate_every, 1)
        if not evaluation:
            evaluation = self.goodput.seconds()["evaluation"] / max(self.number, training.evaluate_every, 1)
        checkpoint = self.clock.total(["checkpoint"]) / max(made, min(filter(None, saves)))
        return self.clock.recent_update_seconds() + evaluation + checkpoint

    def is_logged_after(self, number: int) -> bool:
        """Whether a line of the log follows update ``number``: when one is due, and at the end of the run."""
        return number % self.config.training.log_every == 0 or number == self.num_updates

    def is_validated_after(self, number: int) -> bool:
        """Whether a validation follows update ``number``; one follows the last, unless the run never validates."""
        every = self.config.training.evaluate_every
        return every > 0 and (number % every == 0 or number == self.num_updates)

    def is_saved_after(self, number: int) -> bool:
        """Whether a checkpoint follows update ``number``: when one is due, after a validation, and at the end of the run."""
        is_due = number % self.config.training.checkpoint_every == 0 or number == self.num_updates
        is_due = is_due or self.has_new_length
        return is_due or self.is_interrupted or self.is_stopped or self.is_validated_after(number)

    def is_estimated_after(self, number: int) -> bool:
        """Whether a run with a budget of time estimates its end after update ``number``."""
        return self.is_estimate_due or self.is_saved_after(number)

    def note_time(self) -> None:
        """Makes an estimate due every minute of updates, more often within a short budget."""
        budget = self.config.training.budget_seconds
        interval = min(SECONDS_OF_AN_ESTIMATE, SHARE_OF_AN_ESTIMATE * budget)
        self.is_estimate_due = self.has_budget and self.clock.total(TRAINING) - self.estimated_at >= interval

    @property
    def reason_to_end(self) -> str | None:
        """Reason to end before the next update; None to continue."""
        if self.is_interrupted:
            return "interrupted"
        if self.is_validation_due:
            return None
        if self.number >= self.num_updates:
            return "finished"
        patience = self.config.training.patience
        if self.is_stopped:
            return "stopped"
        return "patience" if patience and self.counters.evaluations_without_gain >= patience else None

    def stop(self) -> None:
        """Called by hooks: ends the run after this update if it is saved, else after the next."""
        self.is_stopped = True

    def record(self, metrics: dict[str, float]) -> None:
        """Writes ``metrics`` of update ``number`` to the log and the trackers."""
        self.log.write(self.number, metrics)
        self.trackers.write(self.number, metrics)
        self.signs.add({"step": self.number, **metrics})
        self.logged |= metrics

    def progress(self) -> Progress:
        """Metadata of a checkpoint: settings, digests of the data, tokenizers, counters, contents of the log."""
        logged = self.log.contents
        return {
            "config": to_json(self.config),
            "data": dict(self.task.identity),
            "tokenizer": tokenizers_to_json(self.task.tokenizers),
            "counters": asdict(self.counters),
            "num_records": logged.num_records,
            "log_digest": logged.digest,
            "is_validation_due": self.is_validation_due,
        }


Hook = Callable[[TrainingRun], object]
"""Called with the run after an update, observers also once before the first; its result is ignored."""
