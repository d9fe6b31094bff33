"""Metrics by which runs are compared."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

LABELS = {"bleu": "BLEU", "chrf": "chrF", "bleu_lowercase": "BLEU lower-case"}


class Metric(NamedTuple):
    """The metric that selects checkpoints: its name among those of an evaluation, and whether more or less of it is better."""

    name: str
    direction: Literal["maximize", "minimize"]

    @property
    def label(self) -> str:
        """Its name in tables: ``BLEU``, ``bits per byte``."""
        return LABELS.get(self.name, self.name.replace("_", " "))

    def text(self, value: float) -> str:
        """A value with enough digits to distinguish runs."""
        return f"{value:.2f}" if self.direction == "maximize" else f"{value:.4f}"

    @property
    def is_independent_of_tokenizer(self) -> bool:
        """Whether it compares runs of different tokenizers; a loss per token does not."""
        return self.name not in ("loss", "perplexity")

    @property
    def key(self) -> str:
        """Its name in the log of a run: ``validation/bleu``."""
        return f"validation/{self.name}"

    def is_better(self, value: float, than: float) -> bool:
        """Whether ``value`` beats ``than``."""
        return value > than if self.direction == "maximize" else value < than

    def best_step(self, values: Mapping[int, float]) -> int:
        """The step with the best value, of equals the newest."""
        sign = 1 if self.direction == "maximize" else -1
        return max(values, key=lambda step: (sign * values[step], step))
