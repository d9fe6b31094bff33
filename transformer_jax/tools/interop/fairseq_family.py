"""Encoder-decoders with the parameter names of fairseq, such as Marian and M2M-100."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import DataError, from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tools.interop.matrix_layout import as_kernels, matrix_shapes, table_names, without_zero_biases
from transformer_jax.tools.interop.models import ImportedModel, require_same_shapes, require_sizes

PARTS = (
    (r"^(encoder|decoder)_layers_(\d+)/", r"\1.layers.\2."),
    (r"^(encoder|decoder)_norm/", r"\1.layer_norm."),
    (r"self_attention_residual/norm/", "self_attn_layer_norm."),
    (r"cross_attention_residual/norm/", "encoder_attn_layer_norm."),
    (r"feed_forward_residual/norm/", "final_layer_norm."),
    (r"self_attention/", "self_attn."),
    (r"cross_attention/", "encoder_attn."),
    (r"feed_forward/wide_", "fc1."),
    (r"feed_forward/narrow_", "fc2."),
    (r"(q)uery|(k)ey|(v)alue", r"\1\2\3_proj"),
    (r"_attn\.output", "_attn.out_proj"),
    (r"_proj_bias$", "_proj.bias"),
    (r"_proj$", "_proj.weight"),
    (r"kernel$|scale$", "weight"),
)
# Parameters with the model width on the last axis, and on the first, as matrices [out, in].
WIDTH_LAST = re.compile(r"(table|attention/(query|key|value)|(wide|gate)_kernel)$")
WIDTH_FIRST = re.compile(r"(attention/output|narrow_kernel|narrow_bias|output_bias|norm/(scale|bias))$")

SPECIAL_PIECES = {PAD_ID: "<pad>", BOS_ID: "<s>", EOS_ID: "</s>", UNK_ID: "<unk>"}
# The foreign id of a piece that the foreign vocabulary lacks.
NOWHERE = -1
# Low enough to be never chosen and to change no other probability. Label smoothing takes the mean
# of all logits, and Adafactor the root mean square of their biases: -1e9 would dominate both.
MISSING_LOGIT = -1e3


def fairseq_name(name: str) -> str:
    """Return ``encoder.layers.0.fc1.weight`` for ``encoder_layers_0/feed_forward/wide_kernel``."""
    for pattern, replacement in PARTS:
        name = re.sub(pattern, replacement, name)
    return name


def halves(d_model: int) -> np.ndarray:
    """Return 0, 2, 4, ..., 1, 3, 5, ..., which moves sines before cosines."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def reordered_width(name: str, matrix: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Reorder the width axis. With all parameters reordered, the outputs do not change."""
    if WIDTH_LAST.search(name):
        return np.ascontiguousarray(matrix[..., order])
    return np.ascontiguousarray(matrix[order]) if WIDTH_FIRST.search(name) else matrix


@dataclass(frozen=True, eq=False)
class VocabularyOrder:
    """A foreign vocabulary in the order of this package: PAD, BOS, EOS and UNK first.

    ``theirs``: the foreign id for every id here, or ``NOWHERE``.
    """

    theirs: np.ndarray

    @cached_property
    def ours(self) -> dict[int, int]:
        """Ids here by foreign id, the last if there are two."""
        return {int(there): here for here, there in enumerate(self.theirs) if there != NOWHERE}

    @property
    def is_complete(self) -> bool:
        return len(self.ours) == len(self.theirs)

    @property
    def repeated(self) -> list[int]:
        """Ids here whose foreign id also has a later id here."""
        return [i for i, there in enumerate(self.theirs) if self.ours.get(int(there), i) != i]

    def pieces(self, theirs: Mapping[int, str]) -> list[str]:
        """Return pieces by id here, from pieces by foreign id."""
        return [SPECIAL_PIECES.get(i) or theirs.get(int(there), f"<{there}>") for i, there in enumerate(self.theirs)]

    def rows(self, table: np.ndarray) -> np.ndarray:
        """Return the rows of a foreign table in the order of this package, 0 if missing."""
        rows = table[self.theirs]
        rows[self.theirs == NOWHERE] = 0.0
        return rows

    def to_theirs(self, ids: Sequence[int]) -> list[int]:
        return [int(self.theirs[i]) for i in ids]

    def to_ours(self, ids: Sequence[int]) -> list[int]:
        """Return ids here, UNK for an id without one."""
        return [self.ours.get(int(i), UNK_ID) for i in ids]

    def logits(self, theirs: np.ndarray) -> np.ndarray:
        """Return foreign logits [..., V] in the order of this package.

        Missing and repeated ids get ``MISSING_LOGIT``.
        """
        ours, is_missing = theirs[..., self.theirs], self.theirs == NOWHERE
        is_missing[self.repeated] = True
        ours[..., is_missing] = MISSING_LOGIT
        return ours


def vocabulary_order(size: int, *, pad: int, start: int, eos: int, unk: int) -> VocabularyOrder:
    """Return the order with ``start``, the first token of the foreign decoder, as BOS.

    Other ids keep their order. A ``pad`` that is also another special id counts as missing. An id
    that is both ``start`` and ``eos`` is BOS and EOS.
    """
    special = {BOS_ID: start, EOS_ID: eos, UNK_ID: unk, PAD_ID: NOWHERE if pad in (start, eos, unk) else pad}
    theirs = [special[i] for i in sorted(special)]
    return VocabularyOrder(np.array(theirs + [i for i in range(size) if i not in theirs]))


Orders = tuple[VocabularyOrder, VocabularyOrder]
"""Orders of source and target: one object if they share a vocabulary."""


class Tables(NamedTuple):
    """Embeddings of both sides and output projection [V, D], logits bias [V], by foreign id."""

    source: np.ndarray
    target: np.ndarray
    projection: np.ndarray
    bias: np.ndarray

    def tying(self, has_one_vocabulary: bool) -> str:
        """Return the setting ``model.tying`` that these tables allow."""
        is_source = has_one_vocabulary and np.array_equal(self.source, self.target)
        if np.array_equal(self.target, self.projection):
            return "all" if is_source else "output"
        return "embeddings" if is_source else "none"


def imported_translation(
    model: dict[str, Any],
    languages: Mapping[str, str],
    tokenizers: TokenizerPair,
    state: dict[str, np.ndarray],
    tables: Tables,
    orders: Orders,
    width_order: np.ndarray | None = None,
) -> ImportedModel:
    """Return a translation model, without biases of attention and logits that are all zero.

    Args:
        model: Settings of the model.
        languages: Settings of the data.
        tokenizers: Tokenizers of source and target.
        state: Exactly the layers.
        tables: Tables by foreign id.
        orders: Orders of the vocabularies.
        width_order: The order that converts the foreign width axis.

    Raises:
        DataError: Tensors are missing, unexpected or of another shape.
    """
    joint, size = orders[0] is orders[1], max(tokenizer.vocabulary_size for tokenizer in tokenizers)
    tokenizer = {"kind": tokenizers.source.kind, "vocabulary_size": size, "joint": joint}
    model = model | {"attention": "biased", "tying": tables.tying(joint)}
    config = from_dict({"tokenizer": tokenizer, "model": model, "data": dict(languages)})
    source_order, target_order = orders
    for name, table, order in zip(Tables._fields, tables, (source_order, *[target_order] * 3), strict=True):
        if len(table) != len(order.ours):
            problem = f"{len(table):,} rows for a vocabulary of {len(order.ours):,} pieces"
            raise DataError(f"the {name} table has {problem}")
        if table.shape[1:] not in ((), (config.model.d_model,)):
            problem = f"has shape {table.shape}, but the model has width {config.model.d_model}"
            raise DataError(f"the {name} table {problem}")
    # An id that is both BOS and EOS is generated as EOS.
    bias = target_order.logits(tables.bias)
    has_bias = not target_order.is_complete or bool(np.any(bias))
    config = replace(config, model=replace(config.model, logits_bias=has_bias))
    require_sizes(config, {name: leaf.shape for name, leaf in state.items()})
    all_shapes = ImportedModel(config, tokenizers, {}).shapes()
    shapes = {name: shape for name, shape in all_shapes.items() if name.startswith(("encoder_", "decoder_"))}
    expected = {fairseq_name(name): shape for name, shape in matrix_shapes(shapes).items()}
    require_same_shapes(state, expected, "model")
    matrices = {name: state[fairseq_name(name)] for name in shapes}
    ours = zip(table_names(config.model), (source_order, target_order, target_order), tables, strict=False)
    for name, order, table in reversed(list(ours)):
        matrices[name] = order.rows(table)
    if width_order is not None:
        matrices = {name: reordered_width(name, leaf, width_order) for name, leaf in matrices.items()}
    arrays = as_kernels(matrices, all_shapes)
    if has_bias:
        arrays["projection/logits_bias"] = bias
    kept = without_zero_biases(arrays)
    if len(kept) < len(arrays):
        config = replace(config, model=replace(config.model, attention="multi_head"))
    return ImportedModel(config, tokenizers, kept)
