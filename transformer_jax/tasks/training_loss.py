"""The loss of a training batch: cross entropy, terms of the loss, watched statistics."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.tree_util import Partial

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, hyperparameters_of
from transformer_jax.layers.embedding import LogitFactors
from transformer_jax.models.devices import policies_on
from transformer_jax.models.initialization import initialized
from transformer_jax.models.inspection import recorded
from transformer_jax.models.interface import Module, call
from transformer_jax.precision import Precision
from transformer_jax.runtime.hardware import device_of
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.corruptions import corrupted
from transformer_jax.training.loss_terms import LOSS_TERMS, SOWN, ForcedPass, LossTerms
from transformer_jax.training.losses import LossSums
from transformer_jax.training.projected_loss import logit_blocks, projected_cross_entropy, projected_sum
from transformer_jax.training.sharding import token_groups
from transformer_jax.training.statistics import Watch


class TrainedObjective(ABC):
    """A model on the devices of ``mesh``, and the loss of its training."""

    def __init__(self, config: ExperimentConfig, mesh: Mesh) -> None:
        self.config, self.mesh = config, mesh
        self._policies = policies_on(mesh)
        self._blocks = logit_blocks(mesh, device_of(mesh).platform)

    @abstractmethod
    def training_model(self, hyperparameters: Hyperparameters) -> Module:
        """The model, with hyperparameters that may be traced."""

    def logit_options(self, precision: Precision, logit_mod: Partial | None) -> dict[str, Any]:
        """Options of ``projected_cross_entropy``; inside of ``shard_map`` each device has its own rows."""
        options = {"precision": precision, "blocks": self._blocks, "logit_mod": logit_mod}
        return {**options, "groups": token_groups(self.mesh)}

    def training_loss(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        """Label-smoothed cross entropy of a ``Batch``, or of ``Tokens``, with dropout."""
        config, model = self.config, self.training_model(hyperparameters)
        terms, watch = LossTerms(config, hyperparameters), Watch(config, hyperparameters)

        def forward(key: Array) -> tuple[LogitFactors, PyTree]:
            read = corrupted(config, hyperparameters, batch, key)
            options: dict[str, Any] = {"train": True, "rngs": {"dropout": key}}
            options["mutable"] = terms.collections + watch.collections
            result: tuple[LogitFactors, PyTree] = call(model, params, "factors", *_sides(read), **options)
            return result

        with recorded(watch.reads_activations) as activations:
            (hidden, matrix, logit_mod), collected = forward(key)
        how = self.logit_options(self._policies[config.model.compute_dtype], logit_mod)
        target, smoothing = _sides(batch)[-1], hyperparameters.label_smoothing
        labels, weights = jnp.asarray(target.ids), jnp.asarray(target.segments != 0, jnp.float32)

        def cross_entropy(hidden: Array, labels: Any = labels, weights: Array = weights) -> LossSums:
            return projected_cross_entropy(hidden, matrix, jnp.asarray(labels), weights, smoothing, **how)

        forced = ForcedPass(
            hidden,
            target,
            weights,
            collected.get(SOWN, {}),
            again=lambda: forward(jax.random.fold_in(key, 1))[0].hidden,
            cross_entropy=cross_entropy,
            sum_of_tokens=lambda function, *hidden: projected_sum(function, hidden, matrix, weights, **how),
            config=config,
            model=model,
            params=params.get(LOSS_TERMS, {}),
            key=key,
        )
        sums = projected_cross_entropy(hidden, matrix, labels, weights, smoothing, terms=terms.of_logits, **how)
        return terms.of_pass(sums, forced)._replace(statistics=watch.of_pass(activations))


def _sides(batch: PyTree) -> list[Tokens]:
    """Source and target of pairs, or the rows of a text."""
    return jax.tree.leaves(batch, is_leaf=lambda each: isinstance(each, Tokens))


def initial_params(config: ExperimentConfig, model: Module, init: Callable[..., PyTree], key: Array) -> PyTree:
    """Parameters before the first update: of ``model``, from ``init(model, key)``, and of terms of the loss that have some."""
    terms = LossTerms(config, hyperparameters_of(config))

    def init_all(key: Array) -> PyTree:
        return init(model, key) | terms.init_params(model, key)

    return initialized(init_all, config.model, config.parts, key)
