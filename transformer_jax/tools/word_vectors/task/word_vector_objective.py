"""The objective of word vectors: parameters, the rows that a block reads, their loss."""

from collections.abc import Collection
from operator import attrgetter

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import NUM_SPECIAL_IDS, Array, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.tools.word_vectors.keyed_vectors import KeyedVectors, keyed_vectors
from transformer_jax.tools.word_vectors.task.glove import Glove, init_glove
from transformer_jax.tools.word_vectors.task.row_updates import ROW_RULES, Lookups, RowLoss, row_update_rule
from transformer_jax.tools.word_vectors.task.word2vec import CbowNegative, SkipGramNegative, init_tables
from transformer_jax.training.losses import LossSums
from transformer_jax.training.step import UpdateRule

OBJECTIVES = {"skip_gram": SkipGramNegative, "cbow": CbowNegative, "glove": Glove}
"""By ``model.kind``."""

ROW_MULTIPLE = 64
"""Rows of a table are rounded up to a multiple of this, so that it can be sharded."""

TABLES = {"skip_gram": ("embedding",), "cbow": ("embedding",), "glove": ("embedding", "projection")}
"""The tables whose sum is the vectors (Pennington et al. 2014, section 4.2), by ``model.kind``."""


UNSUPPORTED = (
    "optimizer.freeze optimizer.clip_norm optimizer.after_update optimizer.averaging training.label_smoothing "
    "training.loss_terms training.corruptions training.watch"
)


class WordVectorObjective:
    """The tables for a vocabulary of this size, and the loss of blocks.

    Raises ConfigError for an optimizer or a setting that row updates do not support.
    """

    def __init__(self, config: ExperimentConfig, vocabulary: int, mesh: Mesh) -> None:
        name = config.optimizer.name
        if name not in ROW_RULES:
            raise ConfigError("optimizer.name", f"{name!r} cannot update single rows", f"use {' or '.join(ROW_RULES)}")
        for key in UNSUPPORTED.split():
            if (value := attrgetter(key)(config)) and value != "none":
                raise ConfigError(key, f"{value} is not supported for word vectors", "leave it out")
        self._config, self._mesh = config, mesh
        self._rows = -(-vocabulary // ROW_MULTIPLE) * ROW_MULTIPLE
        self._init = init_glove if config.model.kind == "glove" else init_tables
        blocks = OBJECTIVES[config.model.kind](config.model)
        self.lookups: Lookups = blocks.lookups
        """The rows that a block reads."""
        self._loss: RowLoss = blocks.loss

    def init_params(self, key: Array) -> PyTree:
        return self._init(key, self._rows, self._config.model.d_model)

    def loss(
        self, params: PyTree, batch: PyTree, key: Array | None = None, hyperparameters: Hyperparameters | None = None
    ) -> LossSums:
        """Return sums over the examples of a batch, from whole tables."""
        del key, hyperparameters
        return self._loss(self.rows(params, batch), batch)

    def rows(self, params: PyTree, batch: PyTree) -> dict[str, Array]:
        """Look up the rows that a block reads, by name."""
        return {
            name: params[lookup.table[0]][lookup.table[1]][lookup.ids] for name, lookup in self.lookups(batch).items()
        }

    def activations(
        self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters | None
    ) -> dict[str, Array]:
        """Return the rows that a batch reads, since there are no modules."""
        del key, hyperparameters
        return self.rows(params, batch)

    @property
    def update_rule(self) -> UpdateRule:
        """The update, which takes blocks one after another and changes only the rows they read."""
        return row_update_rule(self._config, self.lookups, self._loss, self._mesh)


def vectors_of(
    params: PyTree, config: ExperimentConfig, tokenizer: Tokenizer, without: Collection[int] = ()
) -> KeyedVectors:
    """Return the vectors of a tokenizer's words, in its order, but not of ids ``without`` one."""
    ids = sorted(set(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size)).difference(without))
    tables = [np.asarray(jax.device_get(params[name]["table"]), np.float32) for name in TABLES[config.model.kind]]
    return keyed_vectors(tokenizer.pieces(ids), np.sum(tables, axis=0)[ids])
