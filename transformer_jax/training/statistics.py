"""Statistics of activations, gradients and parameters, for the log and for changes by updates."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters, parts_with
from transformer_jax.registry.plugins import is_registered, registered
from transformer_jax.training.parameters import frozen_mask
from transformer_jax.training.state import SOWN

Ratios = dict[str, Array]
"""Numerator and denominator [2] by path, such as ``encoder_layers_0``, or an empty path."""


class Statistic:
    """Numbers that ``training.watch`` adds to the log, as train/NAME or train/NAME/PATH.

    Results are ratios, so that they are means over whole batches: numerators and denominators are
    added up over micro-batches, devices and the updates since the last line of the log, and then
    divided. ``is_maximum``: the largest of all counts instead of the sum. ``reads_activations``:
    whether it overrides ``of_pass``; layers then run unrolled, their activations are stored, and
    attention computes all weights at once, without a backend. ``reads_sown``: whether its
    ``of_pass`` uses ``Activations.sown``; layers then run unrolled.
    """

    is_maximum: ClassVar[bool] = False
    reads_activations: ClassVar[bool] = False
    reads_sown: ClassVar[bool] = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def of_pass(self, activations: Any) -> Ratios:
        """Return the ratios of a forward pass with dropout.

        ``activations``: see ``models.inspection.Activations``.
        """
        return {}

    def of_micro_batch(self, gradient: PyTree, tokens: Array) -> Ratios:
        """Return ratios of a micro-batch, with the gradient of the sum of its losses."""
        return {}

    def of_update(self, params: PyTree, gradient: PyTree, tokens: Array, joined: Ratios) -> Ratios:
        """Return ratios of the batch, from the gradient of the mean loss and ``joined`` ratios."""
        return joined


class AfterUpdate(Statistic):
    """A part that changes the parameters after updates: a projection, a clipping, untrained state.

    The methods of ``Statistic`` give it numbers of the batch, of any shape behind the two of a
    ratio. ``not_trained``: regular expression of the paths of parameters that it alone changes.
    They have no gradient, no optimizer state and no average.
    """

    not_trained: ClassVar[str] = ""

    def initial_params(self, params: PyTree) -> PyTree:
        """Return the parameters before the first update, or of an average over updates."""
        return params

    def after_update(self, params: PyTree, statistics: Ratios) -> PyTree:
        """Return the parameters after an update that was not skipped."""
        raise NotImplementedError


class Watch:
    """The statistics of ``training.watch`` and the parts of ``optimizer.after_update``, by name."""

    def __init__(self, config: ExperimentConfig, hyperparameters: Hyperparameters) -> None:
        parts, optimizer = parts_with(config, hyperparameters), config.optimizer
        after, watched = registered("after_update"), registered("statistic")
        self._after = {name: after[name](parts.get(name)) for name in optimizer.after_update_names}
        self._watched = {name: watched[name](parts.get(name)) for name in config.training.watch_names} | self._after
        self._freeze = optimizer.freeze

    @property
    def collections(self) -> list[str]:
        """The collections that modules sow, or without which activations are not computed."""
        sown = [SOWN] if any(statistic.reads_sown for statistic in self._watched.values()) else []
        return sown + (["intermediates"] if self.reads_activations else [])

    @property
    def reads_activations(self) -> bool:
        return any(statistic.reads_activations for statistic in self._watched.values())

    def of_pass(self, activations: Any) -> dict[str, Ratios]:
        return {name: statistic.of_pass(activations) for name, statistic in self._watched.items()}

    def with_micro_batch(self, of_pass: dict[str, Ratios], gradient: PyTree, tokens: Array) -> dict[str, Ratios]:
        """Add statistics of the micro-batch to the statistics of its pass."""
        watched = self._watched.items()
        return {name: of_pass.get(name, {}) | part.of_micro_batch(gradient, tokens) for name, part in watched}

    def of_update(
        self, params: PyTree, gradient: PyTree, tokens: Array, joined: dict[str, Ratios]
    ) -> dict[str, Ratios]:
        of_all = params, gradient, tokens
        return {name: part.of_update(*of_all, joined.get(name, {})) for name, part in self._watched.items()}

    def initial_params(self, params: PyTree) -> PyTree:
        for part in self._after.values():
            params = part.initial_params(params)
        return params

    def after_update(self, params: PyTree, statistics: dict[str, Ratios]) -> tuple[PyTree, dict[str, Ratios]]:
        """Return the changed parameters, and the statistics to log. Raises ConfigError."""
        before, shapes = params, jax.tree.map(jnp.shape, params)
        for name, part in self._after.items():
            if (part.reads_activations or part.reads_sown) and not statistics[name]:
                problem = f"{name} got no statistics, which this model or task does not compute"
                raise ConfigError("optimizer.after_update", problem, "leave it out")
            params = part.after_update(params, statistics[name])
            if jax.tree.map(jnp.shape, params) != shapes:
                problem = f"after_update of {name} returned a tree of other names or shapes"
                raise ConfigError("optimizer.after_update", problem, "return the parameters with changed values")
        if self._after and self._freeze:
            is_frozen = frozen_mask(params, self._freeze)
            params = jax.tree.map(lambda new, old, kept: old if kept else new, params, before, is_frozen)
        return params, {name: ratios for name, ratios in statistics.items() if name not in self._after}


def joined_statistics(stacked: dict[str, Ratios]) -> dict[str, Ratios]:
    """Join the stacked ratios [N, 2] of every path into one [2]."""
    return {name: {path: join(name, several) for path, several in of.items()} for name, of in stacked.items()}


def join(name: str, ratios: Any) -> Any:
    """Return one ratio [2] of the ratios [N, 2] of a statistic, in NumPy or JAX."""
    kind = "statistic" if is_registered("statistic", name) else "after_update"
    return ratios.max(axis=0) if registered(kind)[name].is_maximum else ratios.sum(axis=0)


def ratio(numerator: Array | float, denominator: Array | float = 1.0) -> Array:
    return jnp.stack([jnp.asarray(numerator, jnp.float32), jnp.asarray(denominator, jnp.float32)])
