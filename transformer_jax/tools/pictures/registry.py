"""The figures by name."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from transformer_jax.config import ConfigError
from transformer_jax.config.errors import nearest
from transformer_jax.tools.pictures.subject import Subject


class Figure(NamedTuple):
    """A figure: its module, a summary, the recipe that it is of by default (empty: it needs a run), the ending of its file."""

    module: str
    summary: str
    recipe: str
    ending: str = ".png"

    def load(self) -> "FigureModule":
        """Imports its module."""
        module: FigureModule = importlib.import_module(self.module)
        return module


@runtime_checkable
class FigureModule(Protocol):
    """Interface of a figure: ``make`` draws into a file and returns the lines to print, with the numbers that check it."""

    make: Callable[[Subject, Path], list[str]]


FIGURES = {
    "positions": Figure(
        "transformer_jax.tools.pictures.positions",
        "positional encodings: heat map, dot products against distance, a shift as one matrix",
        "configs/transformer_base.py",
    ),
    "scaling": Figure(
        "transformer_jax.tools.pictures.scaling",
        "why scores are divided by sqrt(d_k): their variance, the entropy and the gradient of the softmax",
        "configs/transformer_base.py",
    ),
    "masks": Figure(
        "transformer_jax.tools.pictures.masks",
        "padding, causal, packed and cross masks of real sentences",
        "configs/quickstart.py",
    ),
    "architecture": Figure(
        "transformer_jax.tools.pictures.architecture",
        "the modules of a model with shapes and parameter counts",
        "configs/transformer_base.py",
        ".svg",
    ),
    "schedule": Figure("transformer_jax.tools.pictures.schedule", "the learning rate", "configs/transformer_base.py"),
    "smoothing": Figure(
        "transformer_jax.tools.pictures.smoothing",
        "label smoothing: target, loss and gradient",
        "configs/transformer_base.py",
    ),
    "heads": Figure(
        "transformer_jax.tools.pictures.heads", "BLEU and loss without each head of a run, one at a time", ""
    ),
    "lengths": Figure(
        "transformer_jax.tools.pictures.lengths", "the loss of runs against the length of the target", ""
    ),
}


def find_figure(name: str) -> Figure:
    """The figure of that name.

    Raises:
        ConfigError: there is none, with the nearest one.
    """
    if name not in FIGURES:
        near = nearest(name, FIGURES, cutoff=0.5)
        hint = f"did you mean {near}?" if near else f"figures are {', '.join(FIGURES)}"
        raise ConfigError(f"figure: {name!r} is not a figure; {hint}")
    return FIGURES[name]
