"""The loss of word vectors on a split, and their scores on test sets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class WordVectorEvaluation:
    """The loss per example of a split: a pair of words, or of CBOW a word; and how the vectors do on test sets, if any.

    ``accuracy``: the share of examples whose score has the right sign. ``test_sets``: by name, accuracies from 0 to 1,
    correlations from -1 to 1.
    """

    split: str
    loss: float
    accuracy: float
    num_examples: int
    test_sets: Mapping[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that belong into a log."""
        return {"loss": self.loss, "accuracy": self.accuracy, **self.test_sets}

    @property
    def outputs(self) -> None:
        """Nothing is generated."""

    @property
    def summary(self) -> str:
        """The numbers that belong into a line."""
        found = f", analogies {100 * self.test_sets['analogies']:.2f} %" if "analogies" in self.test_sets else ""
        return f"loss {self.loss:.4f}{found}"

    def to_json(self) -> dict[str, object]:
        """Counts and metrics, as what ``json.dumps`` takes; a number that is not finite becomes null."""
        fields: dict[str, object] = {"split": self.split, "examples": self.num_examples}
        return fields | {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and remark of every line of the table."""
        return [
            ("split", self.split, f"{self.num_examples:,} examples"),
            ("loss", f"{self.loss:.4f}", "nats per example, its negatives included; of GloVe weighted squares"),
            (
                "accuracy",
                f"{self.accuracy:.2%}",
                "of examples whose score has the right sign; of GloVe within a factor of 2",
            ),
            *((name, f"{100 * value:.2f}", "of a test set, times 100") for name, value in self.test_sets.items()),
        ]

    def examples(self, count: int) -> str:
        """Nothing is generated."""
        del count
        return ""
