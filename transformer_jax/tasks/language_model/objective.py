"""The language model of a run and its loss."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, parts_with
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.models.decoder_only import DecoderOnly
from transformer_jax.models.devices import devices_of, policies_on
from transformer_jax.models.initialization import initialized
from transformer_jax.models.inspection import recorded
from transformer_jax.models.interface import LogitFactors, call
from transformer_jax.runtime.hardware import device_of
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.corruptions import corrupted
from transformer_jax.training.loss_terms import LossTerms
from transformer_jax.training.losses import LossSums
from transformer_jax.training.projected_loss import logit_blocks, projected_cross_entropy
from transformer_jax.training.sharding import token_groups
from transformer_jax.training.statistics import Watch


class LanguageModelObjective:
    """A model for a vocabulary of this size, on the devices of ``mesh``, and its loss.

    ``model`` decodes: it takes prompts too, which are padded on the left.

    Raises ConfigError when ``model.attention_backend`` cannot run on them.
    """

    def __init__(self, config: ExperimentConfig, vocabulary: int, mesh: Mesh) -> None:
        self.config = config
        self._devices = devices_of(config.model, mesh, one_sentence=config.batching.kind == "split")
        self._build = partial(build_decoder_only, config.model, vocabulary, parts=config.parts)
        self.model = self._build(devices_of(config.model, mesh))
        self._model_of_rows = self._build(self._devices)
        self._precision = policies_on(mesh)[config.model.compute_dtype]
        self._blocks, self._mesh = logit_blocks(mesh, device_of(mesh).platform), mesh

    def init_params(self, key: Array) -> PyTree:
        """Parameters before the first update."""
        # On any devices: its batch is one row, which cannot be split.
        model, parts = self.config.model, self.config.parts
        return initialized(init_decoder_only(self._build(), key), model, parts, key)

    def training_model(self, hyperparameters: Hyperparameters) -> DecoderOnly:
        """The model of rows of text, with hyperparameters that may be traced."""
        parts = parts_with(self.config, hyperparameters)
        return self._build(self._devices, hyperparameters.rates, parts=parts)

    def loss(self, params: PyTree, batch: Tokens, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        """Label-smoothed cross entropy of a training batch, with dropout."""
        model = self.training_model(hyperparameters)
        terms, watch = LossTerms(self.config, hyperparameters), Watch(self.config, hyperparameters)

        def forward(key: Array) -> tuple[LogitFactors, PyTree]:
            read = corrupted(self.config, hyperparameters, batch, key)
            options: dict[str, Any] = {"train": True, "rngs": {"dropout": key}}
            options["mutable"] = terms.collections + watch.collections
            result: tuple[LogitFactors, PyTree] = call(model, params, "factors", read, **options)
            return result

        with recorded(watch.reads_activations) as activations:
            factors, collected = forward(key)
        labels, weights = jnp.asarray(batch.ids), jnp.asarray(batch.segments != 0, jnp.float32)
        targets = labels, weights, hyperparameters.label_smoothing
        how: dict[str, Any] = {"precision": self._precision, "blocks": self._blocks, "groups": token_groups(self._mesh)}
        sums = projected_cross_entropy(*factors, *targets, terms=terms.of_logits, **how)
        sums = terms.of_pass(
            sums, factors, collected, lambda: forward(jax.random.fold_in(key, 1))[0].hidden, targets, **how
        )
        return sums._replace(statistics=watch.of_pass(activations))

    def unsmoothed_loss(self, params: PyTree, batch: Tokens, is_scored: AnyArray) -> LossSums:
        """Cross entropy of the scored tokens [B, T] of a batch, without dropout or smoothing."""
        factors: LogitFactors = call(self._model_of_rows, params, "factors", batch, train=False)
        weights = jnp.asarray(is_scored, jnp.float32)
        blocks, groups = self._blocks, token_groups(self._mesh)
        return projected_cross_entropy(
            *factors,
            jnp.asarray(batch.ids),
            weights,
            None,
            precision=self._precision.wide,
            blocks=blocks,
            groups=groups,
        )
