"""The evaluation of a task that only measures: numbers of a split, no text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredSplit:
    """Metrics by name, ``loss`` among them, each the mean over ``num_examples``."""

    split: str
    metrics: Mapping[str, float]
    num_examples: int

    @property
    def outputs(self) -> None:
        """Nothing is generated."""

    @property
    def summary(self) -> str:
        """Every metric, with four digits."""
        return ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.metrics.items())

    def to_json(self) -> dict[str, object]:
        """Count and metrics, as what ``json.dumps`` takes; a number that is not finite becomes null."""
        finite = {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}
        return {"split": self.split, "examples": self.num_examples, **finite}

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and remark of every line of the table."""
        measured = [(name.replace("_", " "), f"{value:.4f}", "") for name, value in self.metrics.items()]
        return [("split", self.split, f"{self.num_examples:,} examples"), *measured]

    def examples(self, count: int) -> str:
        """Nothing is generated."""
        del count
        return ""
