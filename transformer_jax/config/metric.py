"""Metrics by which runs are compared."""

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """A metric of validations, by its name among those of an evaluation, and whether more or less of it is better.

    ``title`` is its name in tables where that is not ``name`` in words, ``digits`` distinguish runs.
    ``is_independent_of_tokenizer``: it compares runs of different tokenizers; a loss per token does not. ``needs``: the
    setting, if any, without which it is not measured.
    """

    name: str
    direction: Literal["maximize", "minimize"]
    title: str = ""
    digits: int = 4
    is_independent_of_tokenizer: bool = True
    needs: str = ""

    @property
    def label(self) -> str:
        """Its name in tables: ``BLEU``, ``bits per byte``."""
        return self.title or self.name.replace("_", " ")

    def text(self, value: float) -> str:
        """A value with enough digits to distinguish runs."""
        return f"{value:.{self.digits}f}"

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
