"""The model that a figure is of: settings alone, or a trained run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformer_jax.config import ConfigError, ExperimentConfig


@dataclass(frozen=True)
class Subject:
    """Settings, and where they are those of a run, how to restore it; ``name`` is the recipe or the folder of the run.

    ``others`` are runs to compare it with; ``limit`` is the most sentences to read, 0: up to the figure.
    """

    name: str
    config: ExperimentConfig
    restore: Callable[[], Any] | None = None
    others: tuple["Subject", ...] = ()
    limit: int = 0

    @cached_property
    def trained(self) -> Any:
        """The restored run; raises ConfigError where there is none."""
        if self.restore is None:
            raise ConfigError("--workdir: this figure is of a trained run; give its folder")
        return self.restore()

    @property
    def is_trained(self) -> bool:
        """Whether there are trained parameters."""
        return self.restore is not None

    def require_translation(self) -> None:
        """Raises ConfigError unless the model translates."""
        if self.config.task != "translation":
            raise ConfigError(f"{self.name}: has task={self.config.task}; this figure takes task=translation")
