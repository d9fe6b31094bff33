"""Figures by name, and the model that a figure shows: settings alone, or a trained run."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.errors import nearest


@dataclass(frozen=True)
class Subject:
    """The model that a figure shows: its settings and, for a run, a function that restores it.

    ``name``: recipe or folder of the run.
    """

    name: str
    config: ExperimentConfig
    restore: Callable[[], Any] | None = None

    @cached_property
    def trained(self) -> Any:
        """The restored run; raises ConfigError if there are only settings."""
        if self.restore is None:
            raise ConfigError("--workdir: this figure is of a trained run; give its folder")
        return self.restore()

    def require_translation(self) -> None:
        """Raises ConfigError unless the model translates."""
        if self.config.task != "translation":
            raise ConfigError(f"{self.name}: has task={self.config.task}; this figure takes task=translation")


DrawFigure = Callable[[Subject, Path], list[str]]
"""Draws into a file and returns lines to print, with the main numbers of the figure."""


class Figure(NamedTuple):
    """A figure: its module in ``tools/pictures``, its function, its default recipe, and its flags."""

    module: str
    function: str
    recipe: str
    ending: str = ".png"
    flags: tuple[str, ...] = ("config", "workdir")

    def load(self) -> DrawFigure:
        draw: DrawFigure = getattr(
            importlib.import_module(f"transformer_jax.tools.pictures.{self.module}"), self.function
        )
        return draw


BASE = "configs/transformer_base.py"
OF_PARAMETERS = ("config", "workdir", "checkpoint")
FIGURES = {
    "positions": Figure("positions", "draw_positions", BASE, flags=OF_PARAMETERS),
    "scaling": Figure("attention_figures", "draw_scaling", BASE, flags=()),
    "masks": Figure("attention_figures", "draw_masks", "configs/quickstart.py", flags=OF_PARAMETERS),
    "architecture": Figure("architecture", "draw_architecture", BASE, ".svg"),
    "schedule": Figure("training_figures", "draw_schedule", BASE),
    "smoothing": Figure("training_figures", "draw_smoothing", BASE),
}


def find_figure(name: str) -> Figure:
    """The figure of that name; raises ConfigError, which suggests a similar name, if there is none."""
    if name not in FIGURES:
        near = nearest(name, FIGURES, cutoff=0.5)
        hint = f"did you mean {near}?" if near else f"figures are {', '.join(FIGURES)}"
        raise ConfigError(f"figure: {name!r} is not a figure; {hint}")
    return FIGURES[name]
