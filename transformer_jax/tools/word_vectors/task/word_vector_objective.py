"""The objective of word vectors: parameters, the rows that a block reads, their loss, the learned table."""

from collections.abc import Collection
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import NUM_SPECIAL_IDS, Array, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.tools.word_vectors.keyed_vectors import keyed_vectors
from transformer_jax.tools.word_vectors.task.glove import Glove, init_glove
from transformer_jax.tools.word_vectors.task.row_updates import ROW_RULES, Lookups, RowLoss, row_update_rule
from transformer_jax.tools.word_vectors.task.word2vec import CbowNegative, SkipGramNegative, init_tables
from transformer_jax.training.losses import LossSums
from transformer_jax.training.step import UpdateRule

if TYPE_CHECKING:
    from transformer_jax.tools.word_vectors.keyed_vectors import KeyedVectors

OBJECTIVES = {"skip_gram": SkipGramNegative, "cbow": CbowNegative, "glove": Glove}
"""By ``model.kind``."""

ROW_MULTIPLE = 64
"""The number of rows of a table is rounded up to a multiple of this, so that it can be sharded."""

TABLES = {"skip_gram": ("embedding",), "cbow": ("embedding",), "glove": ("embedding", "projection")}
"""By ``model.kind``: the tables whose sum is the vectors (for GloVe both, section 4.2 of Pennington et al. 2014)."""


class WordVectorObjective:
    """The tables for a vocabulary of this size, and the loss of blocks.

    Raises ConfigError for an optimizer or a setting that row updates do not support.
    """

    def __init__(self, config: ExperimentConfig, vocabulary: int, mesh: Mesh) -> None:
        optimizer = config.optimizer
        if optimizer.name not in ROW_RULES:
            raise ConfigError(
                "optimizer.name", f"{optimizer.name!r} cannot update single rows", f"use {' or '.join(ROW_RULES)}"
            )
        unused = {"optimizer.freeze": optimizer.freeze, "optimizer.clip_norm": optimizer.clip_norm}
        unused["optimizer.after_update"] = optimizer.after_update
        unused["training.label_smoothing"] = config.training.label_smoothing
        unused["training.loss_terms"] = config.training.loss_terms
        unused["training.corruptions"] = config.training.corruptions
        unused["training.watch"] = config.training.watch
        unused["optimizer.averaging"] = optimizer.averaging.replace("none", "")
        for name, value in unused.items():
            if value:
                raise ConfigError(name, f"{value} is not supported for word vectors", "leave it out")
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
        """Sums over the examples of a batch, from whole tables; deterministic."""
        del key, hyperparameters
        return self._loss(self.rows(params, batch), batch)

    def rows(self, params: PyTree, batch: PyTree) -> dict[str, Array]:
        """Return the rows that a block reads, by name."""
        return {
            name: params[lookup.table[0]][lookup.table[1]][lookup.ids] for name, lookup in self.lookups(batch).items()
        }

    def activations(
        self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters | None
    ) -> dict[str, Array]:
        """Return the rows that a batch reads; there are no modules."""
        del key, hyperparameters
        return self.rows(params, batch)

    @property
    def update_rule(self) -> UpdateRule:
        """The update: takes the blocks of a batch one after another, and changes only the rows that each reads."""
        return row_update_rule(self._config, self.lookups, self._loss, self._mesh)


def vectors_of(
    params: PyTree, config: ExperimentConfig, tokenizer: Tokenizer, without: Collection[int] = ()
) -> "KeyedVectors":
    """Return the vectors of a tokenizer's words, in its order, except special ids and the ids ``without`` a vector."""
    left_out = frozenset(without)
    ids = [number for number in range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size) if number not in left_out]
    tables = [np.asarray(jax.device_get(params[name]["table"]), np.float32) for name in TABLES[config.model.kind]]
    return keyed_vectors(tokenizer.pieces(ids), np.sum(tables, axis=0)[ids])
