"""An encoder-decoder with the parameter names of fairseq (fairseq, Marian, M2M-100) as a model of this package."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import DataError, ExperimentConfig, TransformerConfig
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tools.interop.fairseq_names import fairseq_name, reordered_width
from transformer_jax.tools.interop.imported_model import ImportedModel, require_same_shapes
from transformer_jax.tools.interop.matrix_layout import (
    HeadSizes,
    as_kernels,
    matrix_shapes,
    table_names,
    without_zero_biases,
)
from transformer_jax.tools.interop.vocabulary_order import MISSING_LOGIT, VocabularyOrder

SPECIAL_PIECES = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>", UNK_ID: "<unk>"}


class Tables(NamedTuple):
    """Embeddings of source and target, output projection, all [V, D], and the bias of the logits [V], as they number them."""

    source: np.ndarray
    target: np.ndarray
    projection: np.ndarray
    bias: np.ndarray

    def tying(self, has_one_vocabulary: bool) -> str:
        """The setting ``model.tying`` that these tables, of one vocabulary or two, allow."""
        is_source = has_one_vocabulary and np.array_equal(self.source, self.target)
        is_output = np.array_equal(self.target, self.projection)
        return {(True, True): "all", (True, False): "embeddings", (False, True): "output"}.get(
            (is_source, is_output), "none"
        )


def imported_translation(
    config: ExperimentConfig,
    tokenizers: TokenizerPair,
    state: dict[str, np.ndarray],
    tables: Tables,
    orders: tuple[VocabularyOrder, VocabularyOrder],
    width_order: np.ndarray | None = None,
) -> ImportedModel:
    """The model of ``config``, whose attention is biased, from a ``state`` that has its layers and nothing else.

    ``width_order``: the order in which theirs has the width of this package. Biases of attention, or of the logits, that are
    all zero are left out of the model. Raises DataError that names tensors that are missing, unexpected or of another shape.
    """
    source_order, target_order = orders
    for name, table, order in zip(Tables._fields, tables, (source_order, *[target_order] * 3), strict=True):
        _require_size(name, table, order, config.model.d_model)
    bias = target_order.rows(tables.bias, MISSING_LOGIT)
    # An id that is BOS and EOS here is written as EOS alone.
    bias[target_order.repeated] = MISSING_LOGIT
    has_bias = not target_order.is_complete or bool(np.any(bias))
    config = _with_model(config, logits_bias=has_bias)
    model: TransformerConfig = config.model
    found = ImportedModel(config, tokenizers, {})
    shapes = {name: shape for name, shape in found.shapes().items() if name.startswith(("encoder_", "decoder_"))}
    expected = {fairseq_name(name): shape for name, shape in matrix_shapes(shapes).items()}
    require_same_shapes(state, expected, "model")
    matrices = {name: state[fairseq_name(name)] for name in shapes}
    ours = zip(table_names(model), (source_order, target_order, target_order), tables, strict=False)
    for name, order, table in reversed(list(ours)):
        matrices[name] = order.rows(table)
    if width_order is not None:
        matrices = {name: reordered_width(name, leaf, width_order) for name, leaf in matrices.items()}
    named = as_kernels(matrices, HeadSizes(model.num_heads, model.head_key_size, model.head_value_size))
    if has_bias:
        named["projection/logits_bias"] = bias
    kept = without_zero_biases(named)
    if len(kept) < len(named):
        config = _with_model(config, attention="multi_head")
    return ImportedModel(config, tokenizers, kept)


def _require_size(name: str, table: np.ndarray, order: VocabularyOrder, width: int) -> None:
    expected = order.size_there
    if len(table) != expected:
        raise DataError(f"the {name} table has {len(table):,} rows for a vocabulary of {expected:,} pieces")
    if table.shape[1:] not in ((), (width,)):
        raise DataError(f"the {name} table has shape {table.shape}, but the model has width {width}")


def _with_model(config: ExperimentConfig, **settings: object) -> ExperimentConfig:
    return replace(config, model=replace(config.model, **settings))
