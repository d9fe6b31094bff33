"""Counters of a run between the lines of its log."""

from dataclasses import asdict, dataclass
from typing import Any

from transformer_jax.config import Metric
from transformer_jax.training.step import StepMetrics


@dataclass
class Counters:
    """Counters that a run keeps between updates; saved in every checkpoint, so that a resumed run has them.

    ``best`` is the best value of the selection metric so far. ``loss``, ``nll``, ``correct`` and ``tokens`` are sums since the
    last line of the log. ``skipped`` updates were not finite and changed nothing. ``num_updates``: the length of a run that
    was shortened to its budget, 0 while it is ``training.num_updates``.
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

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Counters":
        """The inverse of ``to_json``; checkpoints of version 0.1 call the best value ``best_bleu``."""
        return cls(**{"best" if name == "best_bleu" else name: value for name, value in saved.items()})

    def to_json(self) -> dict[str, Any]:
        """Counters as stored in a checkpoint."""
        return asdict(self)

    def add(self, metrics: StepMetrics) -> None:
        """Adds what one update reported; of a skipped one that it was."""
        if not metrics.finite:
            self.skipped += 1
            return
        for name, value in metrics.sums._asdict().items():
            setattr(self, name, getattr(self, name) + float(value))
        self.total_tokens += float(metrics.sums.tokens)

    def take_window(self) -> dict[str, float]:
        """Means since the last call, per target token."""
        # None where all updates since were skipped.
        tokens = self.tokens or 1.0
        means = {
            "train/loss": self.loss / tokens,
            "train/nll": self.nll / tokens,
            "train/accuracy": self.correct / tokens,
        }
        if self.skipped:
            means["train/skipped_updates"] = float(self.skipped)
        self.loss = self.nll = self.correct = self.tokens = 0.0
        return means

    def add_validation(self, value: float, selection: Metric) -> bool:
        """Counts a validation; True when none was better, so its checkpoint is the best. Only a gain resets patience."""
        is_gain = self.best is None or selection.is_better(value, self.best)
        self.best = value if is_gain else self.best
        self.evaluations_without_gain = 0 if is_gain else self.evaluations_without_gain + 1
        return value == self.best
