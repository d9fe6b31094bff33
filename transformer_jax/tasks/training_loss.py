"""The loss of a training batch: label-smoothed cross entropy, terms, and the first parameters that it trains."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.tree_util import Partial

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, hyperparameters_of, parts_with
from transformer_jax.layers.embedding import LogitFactors
from transformer_jax.models.devices import devices_of, policies_on
from transformer_jax.models.initialization import initialized
from transformer_jax.models.inspection import recorded
from transformer_jax.models.interface import Module, activations, call
from transformer_jax.precision import Precision
from transformer_jax.runtime.hardware import device_of
from transformer_jax.sequence_types import sides_of
from transformer_jax.training.corruptions import corrupted
from transformer_jax.training.loss_terms import SOWN, ForcedPass, LossTerms
from transformer_jax.training.losses import LOSS_TERMS, LossFunction, LossSums
from transformer_jax.training.projected_loss import logit_blocks, projected_cross_entropy, projected_sum
from transformer_jax.training.sharding import token_groups
from transformer_jax.training.statistics import Watch

if TYPE_CHECKING:
    from transformer_jax.training.step import UpdateRule


class Objective:
    """A model on the devices of ``mesh``, and the ``loss`` of its training.

    ``build(devices, rates, parts)`` makes the model, on any devices by default, and ``init(model, key)`` its parameters.

    Raises ConfigError when ``model.attention_backend`` cannot run on the devices.
    """

    update_rule: "UpdateRule | None" = None

    def __init__(
        self, config: ExperimentConfig, mesh: Mesh, build: Callable[..., Module], init: Callable[..., PyTree]
    ) -> None:
        self.config, self.mesh = config, mesh
        self._build, self._init = build, init
        self._devices = devices_of(config.model, mesh, one_sentence=config.batching.kind != "packed")
        self._policies = policies_on(mesh)
        self._blocks = logit_blocks(mesh, device_of(mesh).platform)
        self.loss: LossFunction = self.training_loss

    def init_params(self, key: Array) -> PyTree:
        """Parameters before the first update: of the model, and of terms of the loss that have some."""
        # On any devices: the batch that initializes is one row, which cannot be split.
        model = self._build(parts=self.config.parts)
        terms = LossTerms(self.config, hyperparameters_of(self.config))

        def init_all(key: Array) -> PyTree:
            return self._init(model, key) | terms.init_params(model, key)

        return initialized(init_all, self.config.model, self.config.parts, key)

    def training_model(self, hyperparameters: Hyperparameters) -> Module:
        """The model, with hyperparameters that may be traced."""
        return self._build(self._devices, hyperparameters.rates, parts_with(self.config, hyperparameters))

    def training_loss(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        """Label-smoothed cross entropy of a ``Batch``, or of ``Tokens``, with dropout.

        Adds the loss terms, corruptions of the tokens that the model reads, and statistics that the settings name.
        """
        config, model = self.config, self.training_model(hyperparameters)
        terms, watch = LossTerms(config, hyperparameters), Watch(config, hyperparameters)
        sown = terms.collections + watch.collections

        def forward(key: Array) -> tuple[LogitFactors, PyTree]:
            read = sides_of(corrupted(config, hyperparameters, batch, key))
            result: tuple[LogitFactors, PyTree] = call(
                model, params, "factors", *read, train=True, rngs={"dropout": key}, mutable=sown
            )
            return result

        with recorded(watch.reads_activations) as outputs:
            (hidden, matrix, logit_mod), collected = forward(key)
        options = self._logit_options(self.training_precision, logit_mod)
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
        return terms.of_pass(sums, forced)._replace(statistics=watch.of_pass(outputs))

    def activations(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """Return all module outputs of a training pass."""
        read = sides_of(corrupted(self.config, hyperparameters, batch, key))
        return activations(self.training_model(hyperparameters), params, *read, key=key)

    def unsmoothed_cross_entropy(
        self, factors: LogitFactors, ids: AnyArray, is_scored: AnyArray, precision: Precision
    ) -> LossSums:
        """Cross entropy of the scored tokens [B, T], for validation."""
        labels, weights = jnp.asarray(ids), jnp.asarray(is_scored, jnp.float32)
        options = self._logit_options(precision.float32_output, factors.logit_mod)
        return projected_cross_entropy(factors.hidden, factors.matrix, labels, weights, None, **options)

    @property
    def training_precision(self) -> Precision:
        return self._policies[self.config.model.compute_dtype]

    def _logit_options(self, precision: Precision, logit_mod: Partial | None) -> dict[str, Any]:
        """Options of ``projected_cross_entropy``; inside of ``shard_map`` each device has its own rows."""
        groups = token_groups(self.mesh)
        return {"precision": precision, "blocks": self._blocks, "logit_mod": logit_mod, "groups": groups}
