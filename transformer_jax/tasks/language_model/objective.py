"""The language model of a run and its loss."""

from functools import partial

from jax.sharding import Mesh

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, parts_with
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.models.decoder_only import DecoderOnly
from transformer_jax.models.devices import devices_of
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.training_loss import Objective, initial_params
from transformer_jax.training.losses import LossSums


class LanguageModelObjective(Objective):
    """A model for a vocabulary of this size, on the devices of ``mesh``, and its loss.

    ``model`` decodes: it takes prompts too, which are padded on the left.

    Raises ConfigError when ``model.attention_backend`` cannot run on them.
    """

    def __init__(self, config: ExperimentConfig, vocabulary: int, mesh: Mesh) -> None:
        super().__init__(config, mesh)
        self._devices = devices_of(config.model, mesh, one_sentence=config.batching.kind == "split")
        self._build = partial(build_decoder_only, config.model, vocabulary, parts=config.parts)
        self.model = self._build(devices_of(config.model, mesh))
        self._model_of_rows = self._build(self._devices)

    def init_params(self, key: Array) -> PyTree:
        """Parameters before the first update."""
        # On any devices: its batch is one row, which cannot be split.
        return initial_params(self.config, self._build(), init_decoder_only, key)

    def training_model(self, hyperparameters: Hyperparameters) -> DecoderOnly:
        """The model of rows of text, with hyperparameters that may be traced."""
        parts = parts_with(self.config, hyperparameters)
        return self._build(self._devices, hyperparameters.rates, parts=parts)

    def unsmoothed_loss(self, params: PyTree, batch: Tokens, is_scored: AnyArray) -> LossSums:
        """Cross entropy of the scored tokens [B, T] of a batch, without dropout or smoothing."""
        factors = call(self._model_of_rows, params, "factors", batch, train=False)
        return self.unsmoothed_cross_entropy(factors, batch.ids, is_scored, self.training_precision)
