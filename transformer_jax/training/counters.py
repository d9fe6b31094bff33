"""What the loop counts between the lines of its log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from transformer_jax.training.step import StepMetrics


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

    def note_score(self, bleu: float) -> bool:
        """Counts an evaluation; True when none was better, so its checkpoint is the best. Only a gain resets patience."""
        is_gain = self.best_bleu is None or bleu > self.best_bleu
        self.best_bleu = bleu if is_gain else self.best_bleu
        self.evaluations_without_gain = 0 if is_gain else self.evaluations_without_gain + 1
        return bleu == self.best_bleu


@dataclass
class Stopwatch:
    """Tokens per second of training alone: evaluation and saving do not count."""

    started: float = field(default_factory=time.perf_counter)
    tokens: float = 0.0
    paused: float = 0.0
    _pauses: int = 0

    def restart(self) -> None:
        """Counts from now."""
        self.started, self.tokens, self.paused = time.perf_counter(), 0.0, 0.0

    def rate(self) -> float:
        """Target tokens per second since the last ``restart``."""
        return self.tokens / max(time.perf_counter() - self.started - self.paused, 1e-9)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leaves out what happens inside, once where pauses lie in each other."""
        began = time.perf_counter()
        self._pauses += 1
        yield
        self._pauses -= 1
        if not self._pauses:
            self.paused += time.perf_counter() - began
