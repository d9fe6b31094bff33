"""Statistics of updates that parts add to the log: of activations, gradients and parameters."""

from typing import Any, ClassVar

import jax.numpy as jnp

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, parts_with
from transformer_jax.registry.plugins import registered

Ratios = dict[str, Array]
"""Numerator and denominator [2] by path, such as ``encoder_layers_0``; an empty path where there is one number."""


class Statistic:
    """Numbers that ``training.watch`` adds to the log, as train/NAME or train/NAME/PATH; override some of the methods.

    Results are ratios, so that they are means over whole batches: numerators and denominators are added up over micro-batches,
    devices and the updates since the last line of the log, and then divided. ``is_maximum``: the largest of all
    counts instead of the sum. ``reads_activations``: whether it overrides ``of_pass``; layers then run unrolled, their
    activations are stored, and attention computes all weights at once, without a backend.
    """

    is_maximum: ClassVar[bool] = False
    reads_activations: ClassVar[bool] = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def of_pass(self, activations: Any) -> Ratios:
        """Of a forward pass with dropout, ``models.inspection.Activations``."""
        return {}

    def of_micro_batch(self, gradient: PyTree, tokens: Array) -> Ratios:
        """Of a micro-batch of gradient accumulation, with the gradient of the sum of its losses."""
        return {}

    def of_update(self, params: PyTree, gradient: PyTree, tokens: Array, joined: Ratios) -> Ratios:
        """Of the whole batch, with the gradient of the mean loss; ``joined``: of its passes and micro-batches."""
        return joined


class Watch:
    """The statistics of ``training.watch``, by their name."""

    def __init__(self, config: ExperimentConfig, hyperparameters: Hyperparameters) -> None:
        parts, names = parts_with(config, hyperparameters), config.training.watch_names
        self._watched: dict[str, Statistic] = {name: registered("statistic")[name](parts.get(name)) for name in names}

    @property
    def collections(self) -> list[str]:
        """The collections without which activations are not computed."""
        return ["intermediates"] if self.reads_activations else []

    @property
    def reads_activations(self) -> bool:
        return any(each.reads_activations for each in self._watched.values())

    def of_pass(self, activations: Any) -> dict[str, Ratios]:
        return {name: each.of_pass(activations) for name, each in self._watched.items()}

    def with_micro_batch(self, found: dict[str, Ratios], gradient: PyTree, tokens: Array) -> dict[str, Ratios]:
        """``found`` in a pass, and statistics of the micro-batch."""
        return {
            name: found.get(name, {}) | each.of_micro_batch(gradient, tokens) for name, each in self._watched.items()
        }

    def of_update(self, params: PyTree, gradient: PyTree, tokens: Array, found: dict[str, Ratios]) -> dict[str, Ratios]:
        of_all = params, gradient, tokens
        return {name: each.of_update(*of_all, found.get(name, {})) for name, each in self._watched.items()}


def joined_statistics(stacked: dict[str, Ratios]) -> dict[str, Ratios]:
    """One ratio of several, [N, 2], for every path."""
    return {name: {path: join(name, each) for path, each in ratios.items()} for name, ratios in stacked.items()}


def join(name: str, ratios: Any) -> Any:
    """One ratio [2] of the ratios [N, 2] of a statistic, in numpy or JAX."""
    return ratios.max(axis=0) if registered("statistic")[name].is_maximum else ratios.sum(axis=0)


def ratio(numerator: Array | float, denominator: Array | float = 1.0) -> Array:
    """The two numbers of a ratio, as ``Statistic`` returns them."""
    return jnp.stack([jnp.asarray(numerator, jnp.float32), jnp.asarray(denominator, jnp.float32)])
