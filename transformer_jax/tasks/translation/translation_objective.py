"""The model of a translation run, and its loss."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig
from transformer_jax.models.build import build_model
from transformer_jax.models.devices import devices_of, policies_on
from transformer_jax.models.interface import call, init_params
from transformer_jax.runtime.hardware import device_of, evaluation_dtype
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.objective import Objective
from transformer_jax.training.sharding import psum_over_rows

if TYPE_CHECKING:
    from transformer_jax.training.losses import LossSums


class TranslationObjective(Objective):
    """A model for vocabularies of these sizes, on the devices of ``mesh``, and its loss.

    ``model`` evaluates (decoding and loss) in the precision ``evaluation_dtype``;
    ``training_model`` trains.
    """

    def __init__(self, config: ExperimentConfig, source_vocabulary: int, target_vocabulary: int, mesh: Mesh) -> None:
        vocabularies = source_vocabulary, target_vocabulary
        super().__init__(config, mesh, partial(build_model, config.model, *vocabularies), init_params)
        self.longest_sequence = config.model.longest_sequence
        of_decoding, of_model = config.decoding.compute_dtype, config.model.compute_dtype
        self.evaluation_dtype = evaluation_dtype(of_decoding, of_model, device_of(mesh))
        evaluated = replace(config.model, compute_dtype=self.evaluation_dtype)
        if config.model.has_attention_backend:
            # Evaluation has no dropout, and may have a precision that cuDNN lacks.
            backend = config.model.attention_backend
            if backend == "cudnn" and self.evaluation_dtype != of_model:
                backend = "auto"
            evaluated = replace(evaluated, attention_dropout=0.0, attention_backend=backend)
        policies = policies_on(mesh, of_evaluation=True)
        self.evaluation_precision = policies[self.evaluation_dtype].of_output_layer.float32_output
        devices = devices_of(evaluated, mesh, one_sentence=True)._replace(policies=policies)
        self.model = build_model(evaluated, *vocabularies, devices, parts=config.parts)
        self._unsmoothed_loss: Callable[[PyTree, Batch, Array, None], "LossSums"] = self._unsmoothed_loss_of_rows
        if config.model.is_recurrent and mesh.size > 1:
            self.loss = psum_over_rows(self.loss, mesh)
            self._unsmoothed_loss = psum_over_rows(self._unsmoothed_loss_of_rows, mesh)

    def unsmoothed_loss(self, params: PyTree, batch: Batch) -> "LossSums":
        return self._unsmoothed_loss(params, batch, jax.random.key(0), None)

    def _unsmoothed_loss_of_rows(self, params: PyTree, batch: Batch, key: Array, hyperparameters: None) -> "LossSums":
        factors = call(self.model, params, "factors", *batch, train=False)
        is_scored = batch.target.segments != 0
        return self.unsmoothed_cross_entropy(factors, batch.target.ids, is_scored, self.evaluation_precision)
