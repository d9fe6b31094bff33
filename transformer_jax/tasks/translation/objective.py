"""The model of a run and its loss: the part of translation that needs no data."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, Number, Rates
from transformer_jax.models.build import build_model
from transformer_jax.models.devices import devices_of, policies_on
from transformer_jax.models.interface import LogitFactors, Module, call, init_params
from transformer_jax.precision import Precision
from transformer_jax.runtime.hardware import device_of, evaluation_dtype
from transformer_jax.sequence_types import Batch
from transformer_jax.training.losses import LossSums
from transformer_jax.training.projected_loss import logit_blocks, projected_cross_entropy
from transformer_jax.training.sharding import SumFunction, summed_over_rows, token_groups


class TranslationObjective:
    """A model for vocabularies of these sizes, on the devices of ``mesh``, and its loss.

    ``model`` is the one that is evaluated, decoding and loss, in the precision ``evaluation_dtype``.

    Raises ConfigError when ``model.attention_backend`` cannot run on them.
    """

    def __init__(self, config: ExperimentConfig, source_vocabulary: int, target_vocabulary: int, mesh: Mesh) -> None:
        self.config, self.longest_sequence = config, config.model.longest_sequence
        place = partial(devices_of, mesh=mesh, one_sentence=config.batching.kind != "packed")
        self._on = place(config.model)
        self._build = partial(build_model, config.model, source_vocabulary, target_vocabulary)
        stated, of_model = config.decoding.compute_dtype, config.model.compute_dtype
        self.evaluation_dtype = evaluation_dtype(stated, of_model, device_of(mesh))
        evaluated = replace(config.model, compute_dtype=self.evaluation_dtype)
        self.model = build_model(evaluated, source_vocabulary, target_vocabulary, place(evaluated))
        # Parameters are made from a single row, which is not split.
        self._anywhere = self._build()
        self._mesh = mesh
        self._over_devices: Callable[[SumFunction], SumFunction] = _as_it_is
        if config.model.is_recurrent and mesh.size > 1:
            self._over_devices = partial(summed_over_rows, mesh=mesh)
        policies = policies_on(mesh)
        self._precision, self._evaluation_precision = policies[of_model], policies[self.evaluation_dtype].wide
        self._blocks = logit_blocks(mesh, device_of(mesh).platform)

    def init_params(self, key: Array) -> PyTree:
        """Parameters before the first update."""
        return init_params(self._anywhere, key)

    def training_model(self, rates: Rates) -> Module:
        """``model``, with rates that may be traced."""
        return self._build(self._on, rates)

    def loss(self, params: PyTree, batch: Batch, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        """Label-smoothed cross entropy of a training batch, with dropout."""
        return self._over_devices(self._smoothed_loss)(params, batch, key, hyperparameters)

    def unsmoothed_loss(self, params: PyTree, batch: Batch) -> LossSums:
        """Cross entropy without dropout or smoothing, for validation."""
        return self._over_devices(self._plain_loss)(params, batch, jax.random.key(0), None)

    def _smoothed_loss(self, params: PyTree, batch: Batch, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        model = self.training_model(hyperparameters.rates)
        factors = call(model, params, "factors", *batch, train=True, rngs={"dropout": key})
        return self._sums(factors, batch, hyperparameters.label_smoothing, self._precision)

    def _plain_loss(self, params: PyTree, batch: Batch, key: Array, hyperparameters: None) -> LossSums:
        factors = call(self.model, params, "factors", *batch, train=False)
        return self._sums(factors, batch, None, self._evaluation_precision)

    def _sums(self, factors: LogitFactors, batch: Batch, smoothing: Number, precision: Precision) -> LossSums:
        return projected_cross_entropy(
            *factors,
            jnp.asarray(batch.target.ids),
            jnp.asarray(batch.target.segments != 0, jnp.float32),
            smoothing,
            precision=precision,
            blocks=self._blocks,
            groups=token_groups(self._mesh),
        )


def _as_it_is(function: SumFunction) -> SumFunction:
    return function
