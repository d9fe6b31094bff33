"""The loss of a training batch with loss terms, corruptions of its tokens, and watched statistics."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters
from transformer_jax.layers.embedding import LogitFactors
from transformer_jax.models.inspection import recorded
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import sides_of
from transformer_jax.training.corruptions import corrupted
from transformer_jax.training.loss_terms import LOSS_TERMS, SOWN, ForcedPass, LossTerms
from transformer_jax.training.losses import LossSums
from transformer_jax.training.projected_loss import projected_cross_entropy, projected_sum
from transformer_jax.training.statistics import Watch


def modified_loss(
    config: ExperimentConfig,
    training_model: Callable[[Hyperparameters], Module],
    logit_options: Callable[[Partial | None], dict[str, Any]],
    params: PyTree,
    batch: PyTree,
    key: Array,
    hyperparameters: Hyperparameters,
) -> LossSums:
    """The cross entropy of ``Objective.training_loss``, and terms; the model reads corrupted tokens.

    ``training_model`` and ``logit_options``: of the objective.
    """
    model = training_model(hyperparameters)
    terms, watch = LossTerms(config, hyperparameters), Watch(config, hyperparameters)

    def forward(key: Array) -> tuple[LogitFactors, PyTree]:
        read = sides_of(corrupted(config, hyperparameters, batch, key))
        options: dict[str, Any] = {"train": True, "rngs": {"dropout": key}}
        options["mutable"] = terms.collections + watch.collections
        result: tuple[LogitFactors, PyTree] = call(model, params, "factors", *read, **options)
        return result

    with recorded(watch.reads_activations) as activations:
        (hidden, matrix, logit_mod), collected = forward(key)
    options = logit_options(logit_mod)
    target, smoothing = sides_of(batch)[-1], hyperparameters.label_smoothing
    labels, weights = jnp.asarray(target.ids), jnp.asarray(target.segments != 0, jnp.float32)

    def cross_entropy(hidden: Array, labels: Any = labels, weights: Array = weights) -> LossSums:
        return projected_cross_entropy(hidden, matrix, jnp.asarray(labels), weights, smoothing, **options)

    forced = ForcedPass(
        hidden,
        target,
        weights,
        collected.get(SOWN, {}),
        again=lambda: forward(jax.random.fold_in(key, 1))[0].hidden,
        cross_entropy=cross_entropy,
        sum_of_tokens=lambda function, *hidden: projected_sum(function, hidden, matrix, weights, **options),
        config=config,
        model=model,
        params=params.get(LOSS_TERMS, {}),
        key=key,
    )
    sums = projected_cross_entropy(hidden, matrix, labels, weights, smoothing, terms=terms.of_logits, **options)
    return terms.of_pass(sums, forced)._replace(statistics=watch.of_pass(activations))
