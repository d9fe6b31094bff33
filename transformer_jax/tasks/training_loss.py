"""The loss of a training batch: label-smoothed cross entropy, and the first parameters that it trains."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh
from jax.tree_util import Partial

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, hyperparameters_of
from transformer_jax.layers.embedding import LogitFactors
from transformer_jax.models.devices import policies_on
from transformer_jax.models.initialization import initialized
from transformer_jax.models.interface import Module, call
from transformer_jax.precision import Precision
from transformer_jax.runtime.hardware import device_of
from transformer_jax.sequence_types import sides_of
from transformer_jax.tasks.modified_loss import modified_loss
from transformer_jax.training.loss_terms import LossTerms
from transformer_jax.training.losses import LossFunction, LossSums
from transformer_jax.training.projected_loss import logit_blocks, projected_cross_entropy
from transformer_jax.training.sharding import token_groups


class Objective(ABC):
    """A model on the devices of ``mesh``, and the ``loss`` of its training."""

    def __init__(self, config: ExperimentConfig, mesh: Mesh) -> None:
        self.config, self.mesh = config, mesh
        self._policies = policies_on(mesh)
        self._blocks = logit_blocks(mesh, device_of(mesh).platform)
        training = config.training
        is_modified = training.loss_term_names or training.corruption_names or training.watch_names
        self.loss: LossFunction = self.training_loss
        if is_modified:
            options = partial(self.logit_options, self.training_precision)
            self.loss = partial(modified_loss, config, self.training_model, options)

    @abstractmethod
    def training_model(self, hyperparameters: Hyperparameters) -> Module:
        """The model, with hyperparameters that may be traced."""

    def training_loss(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        """Label-smoothed cross entropy of a ``Batch``, or of ``Tokens``, with dropout."""
        model, sides = self.training_model(hyperparameters), sides_of(batch)
        hidden, matrix, logit_mod = call(model, params, "factors", *sides, train=True, rngs={"dropout": key})
        labels, weights = jnp.asarray(sides[-1].ids), jnp.asarray(sides[-1].segments != 0, jnp.float32)
        options = self.logit_options(self.training_precision, logit_mod)
        return projected_cross_entropy(hidden, matrix, labels, weights, hyperparameters.label_smoothing, **options)

    def unsmoothed_cross_entropy(
        self, factors: LogitFactors, ids: AnyArray, is_scored: AnyArray, precision: Precision
    ) -> LossSums:
        """Cross entropy of the scored tokens [B, T], for validation."""
        labels, weights = jnp.asarray(ids), jnp.asarray(is_scored, jnp.float32)
        options = self.logit_options(precision.float32_output, factors.logit_mod)
        return projected_cross_entropy(factors.hidden, factors.matrix, labels, weights, None, **options)

    @property
    def training_precision(self) -> Precision:
        return self._policies[self.config.model.compute_dtype]

    def logit_options(self, precision: Precision, logit_mod: Partial | None) -> dict[str, Any]:
        """Options of ``projected_cross_entropy``; inside of ``shard_map`` each device has its own rows."""
        options = {"precision": precision, "blocks": self._blocks, "logit_mod": logit_mod}
        return {**options, "groups": token_groups(self.mesh)}


def initial_params(config: ExperimentConfig, model: Module, init: Callable[..., PyTree], key: Array) -> PyTree:
    """Parameters before the first update: of ``model``, from ``init(model, key)``, and of terms of the loss that have some."""
    terms = LossTerms(config, hyperparameters_of(config))

    def init_all(key: Array) -> PyTree:
        return init(model, key) | terms.init_params(model, key)

    return initialized(init_all, config.model, config.parts, key)
