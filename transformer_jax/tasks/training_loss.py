"""The loss of a training batch: label-smoothed cross entropy, terms, corruptions and statistics."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.tree_util import Partial

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, parts_with
from transformer_jax.layers.embedding import LogitFactors
from transformer_jax.models.inspection import recorded
from transformer_jax.models.interface import Module, activations, call
from transformer_jax.precision import Precision
from transformer_jax.registry.plugins import registered
from transformer_jax.sequence_types import sides_of
from transformer_jax.training.loss_terms import ForcedPass, LossTerms
from transformer_jax.training.losses import LossSums
from transformer_jax.training.projected_loss import logit_blocks, projected_cross_entropy
from transformer_jax.training.sharding import token_groups
from transformer_jax.training.state import LOSS_TERMS, SOWN
from transformer_jax.training.statistics import Watch


@runtime_checkable
class TrainedModel(Protocol):
    """An ``Objective`` for the loss: settings, a model with traced hyperparameters, and devices."""

    config: ExperimentConfig
    mesh: Mesh
    platform: str

    @property
    def training_precision(self) -> Precision: ...

    def training_model(self, hyperparameters: Hyperparameters) -> Module: ...


def training_loss(
    objective: TrainedModel, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters
) -> LossSums:
    """Return the label-smoothed cross entropy of a ``Batch``, or of ``Tokens``, with dropout.

    Adds the loss terms, corruptions of the tokens that the model reads, and statistics that the
    settings name.
    """
    config, model = objective.config, objective.training_model(hyperparameters)
    terms, watch = LossTerms(config, hyperparameters), Watch(config, hyperparameters)
    collections = terms.collections + watch.collections

    def forward(key: Array) -> tuple[LogitFactors, PyTree]:
        read = sides_of(corrupted(config, hyperparameters, batch, key))
        # A list, also an empty one, makes ``apply`` return a pair.
        return call(model, params, "factors", *read, train=True, rngs={"dropout": key}, mutable=collections)

    with recorded(watch.reads_activations) as recording:
        (hidden, matrix, logit_mod), collected = forward(key)
    sown, term_params = collected.get(SOWN, {}), params.get(LOSS_TERMS, {})
    options = logit_options(objective, objective.training_precision, logit_mod)
    target, smoothing = sides_of(batch)[-1], hyperparameters.label_smoothing
    labels, weights = jnp.asarray(target.ids), jnp.asarray(target.segments != 0, jnp.float32)

    def cross_entropy(hidden: Array, labels: Any = labels, weights: Array = weights) -> LossSums:
        return projected_cross_entropy(hidden, matrix, jnp.asarray(labels), weights, smoothing, **options)

    forced = ForcedPass(hidden, target, weights, sown, cross_entropy, config, model, term_params, key)
    further = [forward(jax.random.fold_in(key, number))[0].hidden for number in range(1, 1 + terms.further_passes)]
    of_logits = terms.of_logits(labels, weights)
    sums = projected_cross_entropy(
        hidden, matrix, labels, weights, smoothing, terms=of_logits, further=further, **options
    )
    statistics = watch.of_pass(recording.with_sown(sown))
    return terms.of_pass(sums, forced)._replace(statistics=statistics)


def corrupted(config: ExperimentConfig, hyperparameters: Hyperparameters, batch: Any, key: Array) -> Any:
    """Apply the parts of ``training.corruptions``, in order, to the tokens that the model reads.

    Labels stay. A decoder reads its targets shifted right.
    """
    parts = parts_with(config, hyperparameters)
    for number, name in enumerate(config.training.corruption_names):
        batch = registered("corruption")[name](parts.get(name), batch, jax.random.fold_in(key, 0xC0 + number))
    return batch


def activations_of(
    objective: TrainedModel, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters
) -> PyTree:
    read = sides_of(corrupted(objective.config, hyperparameters, batch, key))
    return activations(objective.training_model(hyperparameters), params, *read, key=key)


def cross_entropy_of(
    objective: TrainedModel, factors: LogitFactors, ids: AnyArray, is_scored: AnyArray, precision: Precision
) -> LossSums:
    labels, weights = jnp.asarray(ids), jnp.asarray(is_scored, jnp.float32)
    options = logit_options(objective, precision.float32_output, factors.logit_mod)
    return projected_cross_entropy(factors.hidden, factors.matrix, labels, weights, None, **options)


def logit_options(objective: TrainedModel, precision: Precision, logit_mod: Partial | None) -> dict[str, Any]:
    """Return options of ``projected_cross_entropy``, which a ``shard_map`` splits by rows."""
    blocks, groups = logit_blocks(objective.mesh, objective.platform), token_groups(objective.mesh)
    return {"precision": precision, "blocks": blocks, "logit_mod": logit_mod, "groups": groups}
