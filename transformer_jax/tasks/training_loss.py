"""The loss of a training batch: cross entropy, terms of the loss, watched statistics."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, hyperparameters_of
from transformer_jax.models.initialization import initialized
from transformer_jax.models.inspection import recorded
from transformer_jax.models.interface import LogitFactors, Module, call
from transformer_jax.precision import Precision
from transformer_jax.runtime.hardware import device_of
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.corruptions import corrupted
from transformer_jax.training.loss_terms import LOSS_TERMS, SOWN, ForcedPass, LossTerms
from transformer_jax.training.losses import LossSums
from transformer_jax.training.projected_loss import logit_blocks, projected_cross_entropy, projected_sum
from transformer_jax.training.sharding import token_groups
from transformer_jax.training.statistics import Watch


def training_loss(
    config: ExperimentConfig,
    hyperparameters: Hyperparameters,
    model: Module,
    params: PyTree,
    batch: PyTree,
    key: Array,
    **how: Any,
) -> LossSums:
    """Label-smoothed cross entropy of a ``Batch``, or of ``Tokens``, with dropout; ``how``: of ``projected_cross_entropy``."""
    terms, watch = LossTerms(config, hyperparameters), Watch(config, hyperparameters)

    def forward(key: Array) -> tuple[LogitFactors, PyTree]:
        read = corrupted(config, hyperparameters, batch, key)
        options: dict[str, Any] = {"train": True, "rngs": {"dropout": key}}
        options["mutable"] = terms.collections + watch.collections
        result: tuple[LogitFactors, PyTree] = call(model, params, "factors", *_sides(read), **options)
        return result

    with recorded(watch.reads_activations) as activations:
        (hidden, matrix), collected = forward(key)
    target = _sides(batch)[-1]
    weights = jnp.asarray(target.segments != 0, jnp.float32)

    def cross_entropy(hidden: Array, labels: Any = target.ids, weights: Array = weights, **options: Any) -> LossSums:
        smoothing = hyperparameters.label_smoothing
        return projected_cross_entropy(hidden, matrix, jnp.asarray(labels), weights, smoothing, **options, **how)

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
    sums = terms.of_pass(cross_entropy(hidden, terms=terms.of_logits), forced)
    return sums._replace(statistics=watch.of_pass(activations))


def logit_options(mesh: Mesh, precision: Precision) -> dict[str, Any]:
    """Options of ``projected_cross_entropy`` on ``mesh``; inside of ``shard_map`` each device has its own rows."""
    blocks = logit_blocks(mesh, device_of(mesh).platform)
    return {"precision": precision, "blocks": blocks, "groups": token_groups(mesh)}


def _sides(batch: PyTree) -> list[Tokens]:
    """Source and target of pairs, or the rows of a text."""
    return jax.tree.leaves(batch, is_leaf=lambda each: isinstance(each, Tokens))


def initial_params(config: ExperimentConfig, model: Module, init: Callable[..., PyTree], key: Array) -> PyTree:
    """Parameters before the first update: of ``model``, from ``init(model, key)``, and of terms of the loss that have some."""
    terms = LossTerms(config, hyperparameters_of(config))

    def init_all(key: Array) -> PyTree:
        return init(model, key) | terms.init_params(model, key)

    return initialized(init_all, config.model, config.parts, key)
