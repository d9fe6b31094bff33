"""Callbacks of a run, for training from Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path


class Callback:
    """Called while a run trains, in one process; override what you need.

    ``step`` is the number of updates so far; metrics have their names in the log of the run: ``train/loss``.
    """

    def on_log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Every ``training.log_every`` updates."""

    def on_validation(self, step: int, metrics: Mapping[str, float]) -> bool | None:
        """After every validation; True ends the run there."""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """After a checkpoint was given to be written to ``folder``."""


class Callbacks(Callback):
    """Several callbacks as one, called in their order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks

    def on_log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Calls each."""
        for each in self._callbacks:
            each.on_log(step, metrics)

    def on_validation(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Calls each; whether one of them ends the run."""
        asked = [each.on_validation(step, metrics) for each in self._callbacks]
        return any(asked)

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """Calls each."""
        for each in self._callbacks:
            each.on_checkpoint(step, folder)
