"""An encoder-decoder with the parameter names of fairseq (fairseq, Marian, M2M-100) as a model of this package."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import DataError, ExperimentConfig, TransformerConfig
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.interop.fairseq_names import fairseq_name, reordered_width
from transformer_jax.interop.imported_model import ImportedModel
from transformer_jax.interop.matrix_layout import HeadSizes, as_kernels, table_names
from transformer_jax.interop.vocabulary_order import MISSING_LOGIT, VocabularyOrder
from transformer_jax.training.parameter_names import some_of

SPECIAL_PIECES = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>", UNK_ID: "<unk>"}
ATTENTION_BIAS = re.compile(r"attention/(query|key|value|output)_bias$")


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
    all zero are left out of the model. Raises DataError that names missing or unexpected tensors.
    """
    source_order, target_order = orders
    for name, table, order in zip(Tables._fields, tables, (source_order, *[target_order] * 3), strict=True):
        _require_size(name, table, order)
    bias = target_order.rows(tables.bias, MISSING_LOGIT)
    # An id that is BOS and EOS here is written as EOS alone.
    bias[target_order.repeated] = MISSING_LOGIT
    has_bias = not target_order.is_complete or bool(np.any(bias))
    config = _with_model(config, logits_bias=has_bias)
    model: TransformerConfig = config.model
    found = ImportedModel(config, tokenizers, {})
    names = [name for name in found.shapes() if name.startswith(("encoder_", "decoder_"))]
    matrices = _layers(names, state)
    ours = zip(table_names(model), (source_order, target_order, target_order), tables, strict=False)
    for name, order, table in reversed(list(ours)):
        matrices[name] = order.rows(table)
    if width_order is not None:
        matrices = {name: reordered_width(name, leaf, width_order) for name, leaf in matrices.items()}
    named = as_kernels(matrices, HeadSizes(model.num_heads, model.head_key_size, model.head_value_size))
    if has_bias:
        named["projection/logits_bias"] = bias
    biases = [name for name in named if ATTENTION_BIAS.search(name)]
    if not any(np.any(named[name]) for name in biases):
        named = {name: leaf for name, leaf in named.items() if name not in biases}
        config = _with_model(config, attention="multi_head")
    return ImportedModel(config, tokenizers, named)


def _require_size(name: str, table: np.ndarray, order: VocabularyOrder) -> None:
    expected = order.size_there
    if len(table) != expected:
        raise DataError(f"the {name} table has {len(table):,} rows for a vocabulary of {expected:,} pieces")


def _with_model(config: ExperimentConfig, **settings: object) -> ExperimentConfig:
    return replace(config, model=replace(config.model, **settings))


def _layers(names: list[str], state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    theirs = {name: fairseq_name(name) for name in names}
    missing = sorted(set(theirs.values()) - set(state))
    if missing:
        raise DataError(f"tensors are missing: {some_of(missing)}")
    unexpected = sorted(set(state) - set(theirs.values()))
    if unexpected:
        raise DataError(f"unexpected tensors: {some_of(unexpected)}")
    return {name: state[their_name] for name, their_name in theirs.items()}
