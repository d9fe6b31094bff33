"""Attention weights of a trained model for a given pair of sentences."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.models.inspection import attention_maps
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.attention_weights import TextAttention, weights_by_kind
from transformer_jax.tasks.translation.trained_run import TrainedRun

Pieces = list[str]


class PairTokens(NamedTuple):
    """A sentence pair as ids and as pieces to show; all four end with EOS."""

    source_ids: list[int]
    target_ids: list[int]
    source_pieces: Pieces
    target_pieces: Pieces


def tokens_of_pair(tokenizers: TokenizerPair, source: str, target: str) -> PairTokens:
    """Tokens of the two sides."""
    source_ids, target_ids = tokenizers.source.encode(source), tokenizers.target.encode(target)
    return PairTokens(
        [*source_ids, EOS_ID],
        [*target_ids, EOS_ID],
        [*tokenizers.source.pieces(source_ids), "</s>"],
        [*tokenizers.target.pieces(target_ids), "</s>"],
    )


def attention_of_pair(trained: TrainedRun, source: str, target: str | None) -> TextAttention:
    """All attention between a sentence and its translation, by default the run's own."""
    if target is None:
        target = trained.translator.translate(trained.params, [source])[0][0].text
    source_ids, target_ids, source_pieces, target_pieces = tokens_of_pair(trained.tokenizers, source, target)
    sides = (Tokens.from_ids(np.asarray([ids], np.int32)) for ids in (source_ids, target_ids))
    maps = jax.device_get(jax.jit(partial(attention_maps, trained.model))(trained.params, *sides))
    axes = {"source": source_pieces, "target": target_pieces, "input": ["<s>", *target_pieces[:-1]]}
    return TextAttention(source, target, weights_by_kind(maps, axes))
