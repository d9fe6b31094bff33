"""The model of a translation run, or of an ensemble, and its loss."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig
from transformer_jax.layers.embedding import LogitFactors
from transformer_jax.models.build import build_model
from transformer_jax.models.devices import devices_of, policies_on
from transformer_jax.models.ensemble import Ensemble, joined_params, mean_log_probs
from transformer_jax.models.interface import call, init_params
from transformer_jax.runtime.hardware import device_of, evaluation_dtype
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.training_loss import Objective
from transformer_jax.training.losses import LossSums, label_smoothed_cross_entropy
from transformer_jax.training.sharding import psum_over_rows


class TranslationObjective(Objective):
    """A model for vocabularies of these sizes, on the devices of ``mesh``, and its loss.

    ``model`` evaluates (decoding and loss) in the precision ``evaluation_dtype``; ``training_model`` trains.
    ``loss(params, batch, key, hyperparameters)``: label-smoothed cross entropy of a training batch, with dropout.
    """

    def __init__(self, config: ExperimentConfig, source_vocabulary: int, target_vocabulary: int, mesh: Mesh) -> None:
        vocabularies = source_vocabulary, target_vocabulary
        super().__init__(config, mesh, partial(build_model, config.model, *vocabularies), init_params)
        self.longest_sequence = config.model.longest_sequence
        stated, of_model = config.decoding.compute_dtype, config.model.compute_dtype
        self.evaluation_dtype = evaluation_dtype(stated, of_model, device_of(mesh))
        evaluated = replace(config.model, compute_dtype=self.evaluation_dtype)
        if config.model.has_attention_backend:
            # Evaluation has no dropout, and may have a precision that cuDNN lacks.
            stated_backend = config.model.attention_backend
            is_lacking = stated_backend == "cudnn" and self.evaluation_dtype != of_model
            backend = "auto" if is_lacking else stated_backend
            evaluated = replace(evaluated, attention_dropout=0.0, attention_backend=backend)
        policies = policies_on(mesh, of_evaluation=True)
        self.evaluation_precision = policies[self.evaluation_dtype].of_output_layer.float32_output
        devices = devices_of(evaluated, mesh, one_sentence=True)._replace(policies=policies)
        self.model = build_model(evaluated, *vocabularies, devices, parts=config.parts)
        self._unsmoothed_loss: Callable[[PyTree, Batch, Array, None], LossSums] = self._unsmoothed_loss_of_rows
        if config.model.is_recurrent and mesh.size > 1:
            self.loss = psum_over_rows(self.loss, mesh)
            self._unsmoothed_loss = psum_over_rows(self._unsmoothed_loss_of_rows, mesh)

    def unsmoothed_loss(self, params: PyTree, batch: Batch) -> LossSums:
        """Cross entropy without dropout or smoothing, for validation."""
        return self._unsmoothed_loss(params, batch, jax.random.key(0), None)

    def _unsmoothed_loss_of_rows(self, params: PyTree, batch: Batch, key: Array, hyperparameters: None) -> LossSums:
        factors = call(self.model, params, "factors", *batch, train=False)
        is_scored = batch.target.segments != 0
        return self.unsmoothed_cross_entropy(factors, batch.target.ids, is_scored, self.evaluation_precision)


class EnsembleObjective:
    """The ensemble of ``members`` and its loss; for evaluation only: each was trained alone."""

    def __init__(self, members: Sequence[TranslationObjective]) -> None:
        self._members = members
        self.model = Ensemble(tuple(member.model for member in members))
        limits = [member.longest_sequence for member in members if member.longest_sequence is not None]
        self.longest_sequence = min(limits, default=None)
        self.evaluation_dtype = ", ".join(dict.fromkeys(member.evaluation_dtype for member in members))

    def unsmoothed_loss(self, params: PyTree, batch: Batch) -> LossSums:
        """Cross entropy of the mean probabilities; logits are in memory for one column of tokens at a time."""
        names = joined_params(self._members)
        factors = [call(member.model, params[name], "factors", *batch, train=False) for name, member in names.items()]
        precisions = [member.evaluation_precision for member in self._members]

        def loss_of_column(column: tuple[list[Array], Array, Array]) -> LossSums:
            hidden, labels, weights = column
            members = zip(factors, hidden, precisions, strict=True)
            logits = [each._replace(hidden=own).logits(precision) for each, own, precision in members]
            return label_smoothed_cross_entropy(mean_log_probs(logits), labels, weights, None)

        sums = jax.lax.map(loss_of_column, _columns(factors, batch))
        return jax.tree.map(jnp.sum, sums)


def _columns(factors: Sequence[LogitFactors], batch: Batch) -> tuple[list[Array], Array, Array]:
    """Hidden states, labels and weights [T, B, 1, ...] of every column of the targets."""

    def first(array: Array) -> Array:
        return jnp.moveaxis(array[:, :, None], 1, 0)

    weights = jnp.asarray(batch.target.segments != 0, jnp.float32)
    return [first(each.hidden) for each in factors], first(jnp.asarray(batch.target.ids)), first(weights)
