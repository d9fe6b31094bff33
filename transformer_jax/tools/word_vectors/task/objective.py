"""What learns word vectors: parameters, the rows that a block reads, and its loss; all of the task that needs no data."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters, Word2vecConfig
from transformer_jax.tools.word_vectors.task.glove import Glove, PairBlock, init_glove
from transformer_jax.tools.word_vectors.task.hierarchical_softmax import CbowTree, SkipGramTree
from transformer_jax.tools.word_vectors.task.row_updates import ROW_RULES, Lookup, row_update_rule
from transformer_jax.tools.word_vectors.task.word2vec import CbowNegative, SkipGramNegative, TextBlock, init_tables
from transformer_jax.training.losses import LossSums
from transformer_jax.training.step import UpdateRule

Word2vec = SkipGramNegative | CbowNegative | SkipGramTree | CbowTree

OBJECTIVES: dict[tuple[str, str], Callable[[Word2vecConfig], Word2vec]] = {
    ("skip_gram", "negative_sampling"): SkipGramNegative,
    ("cbow", "negative_sampling"): CbowNegative,
    ("skip_gram", "hierarchical_softmax"): SkipGramTree,
    ("cbow", "hierarchical_softmax"): CbowTree,
}
"""By ``model.kind`` and ``model.output``."""

ROW_MULTIPLE = 64
"""The tables have a multiple of so many rows, so that devices can share them."""


def block_shape(config: ExperimentConfig, rows: int, length: int) -> PyTree:
    """The shape of a batch of so many rows, before there is text.

    Raises ConfigError for hierarchical softmax: how many nodes its paths have depends on the text.
    """
    model = config.model

    def of(width: int) -> Array:
        return jnp.zeros((rows, width), jnp.int32)

    if model.kind == "glove":
        return jax.eval_shape(lambda: PairBlock(of(length), of(length), of(length).astype(jnp.float32)))
    if model.output == "hierarchical_softmax":
        raise ConfigError(
            "model.output: how long the paths of hierarchical_softmax are depends on the text, which preflight does not read; "
            "a run of a few updates shows what they cost"
        )
    return jax.eval_shape(lambda: TextBlock(of(length + 2 * model.window), of(length), of(model.shared_negatives)))


class WordVectorObjective:
    """The tables for a vocabulary of this size, and the loss of blocks.

    Raises ConfigError when the settings of the optimizer are not those of an update of rows.
    """

    def __init__(self, config: ExperimentConfig, vocabulary: int, mesh: Mesh) -> None:
        optimizer = config.optimizer
        if optimizer.name not in ROW_RULES:
            raise ConfigError(
                f"optimizer.name: {optimizer.name!r} updates whole tables for the few rows that a block reads; "
                f"use {' or '.join(ROW_RULES)}"
            )
        unused = {"optimizer.freeze": optimizer.freeze, "optimizer.clip_norm": optimizer.clip_norm}
        unused["training.label_smoothing"] = config.training.label_smoothing
        for name, value in unused.items():
            if value:
                raise ConfigError(f"{name}: word vectors have none; found {value}")
        self._config, self._mesh = config, mesh
        self._rows = -(-vocabulary // ROW_MULTIPLE) * ROW_MULTIPLE
        is_glove = config.model.kind == "glove"
        self._blocks = (
            Glove(config.model) if is_glove else OBJECTIVES[config.model.kind, config.model.output](config.model)
        )
        self._init = init_glove if is_glove else init_tables

    def init_params(self, key: Array) -> PyTree:
        """Parameters before the first update."""
        return self._init(key, self._rows, self._config.model.d_model)

    def lookups(self, block: PyTree) -> dict[str, Lookup]:
        """The rows that a block reads."""
        return self._blocks.lookups(block)

    def loss_of_rows(self, rows: Mapping[str, Array], block: PyTree) -> LossSums:
        """Sums over the examples of a block, from the rows that it reads."""
        return self._blocks.loss(rows, block)

    def loss(
        self, params: PyTree, batch: PyTree, key: Array | None = None, hyperparameters: Hyperparameters | None = None
    ) -> LossSums:
        """The same from whole tables; nothing is random in it."""
        del key, hyperparameters
        return self._blocks.loss(self.rows(params, batch), batch)

    def rows(self, params: PyTree, batch: PyTree) -> dict[str, Array]:
        """The rows that a block reads, by name."""
        return {name: params[each.table[0]][each.table[1]][each.ids] for name, each in self.lookups(batch).items()}

    def rule(self) -> UpdateRule:
        """What an update does: the blocks of a batch one after another, each on the rows that it reads."""
        return row_update_rule(self._config, self.lookups, self.loss_of_rows, self._mesh)
