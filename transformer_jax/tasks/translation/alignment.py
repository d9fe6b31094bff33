"""Attention weights of a trained model for a given pair of sentences."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import ConfigError
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.models.attention_kinds import KINDS, layers_by_kind
from transformer_jax.models.interface import attention_maps
from transformer_jax.sequence_types import Tokens
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


class PairAttention(NamedTuple):
    """Weights [H, Q, M] of the layers of one kind of attention by name; the pieces of queries (rows) and keys (columns)."""

    weights: dict[str, np.ndarray]
    rows: Pieces
    columns: Pieces


def attention_of_pair(trained: TrainedRun, source: str, target: str, kind: str) -> PairAttention:
    """The attention of one kind: ``cross``, ``encoder`` or ``decoder``; raises ConfigError when the model has no such."""
    found = attentions_of_pair(trained, source, target)
    if kind not in found:
        raise ConfigError(
            f"--kind: this model has no attention of the kind {kind}; it has {', '.join(found) or 'none at all'}"
        )
    return found[kind]


def attentions_of_pair(trained: TrainedRun, source: str, target: str) -> dict[str, PairAttention]:
    """All attention of a teacher-forced pass by kind, cross attention first.

    Row ``i`` of the decoder is the position that predicts piece ``i``.
    """
    source_ids, target_ids, source_pieces, target_pieces = tokens_of_pair(trained.tokenizers, source, target)
    sides = (Tokens.from_ids(np.asarray([ids], np.int32)) for ids in (source_ids, target_ids))
    maps = jax.device_get(jax.jit(partial(attention_maps, trained.model))(trained.params, *sides))
    axes = {"source": source_pieces, "target": target_pieces, "input": ["<s>", *target_pieces[:-1]]}
    found = {}
    for kind, layers in sorted(layers_by_kind(maps).items(), key=lambda each: each[0] != "cross"):
        prefix, _, rows, columns = KINDS[kind]
        # A recurrent decoder has one attention, whatever its layers.
        is_layered = any("layers_" in path for path in layers)
        names = [f"{prefix} layer {index + 1}" if is_layered else prefix for index in range(len(layers))]
        weights = [each[0] for each in layers.values()]
        found[kind] = PairAttention(dict(zip(names, weights, strict=True)), axes[rows], axes[columns])
    return found


def chosen_heads(weights: dict[str, np.ndarray], layer: int, head: int) -> dict[str, np.ndarray]:
    """The weights of one layer, and of one head; both count from 1, and 0 takes all. Raises ConfigError when there is none."""
    names = list(weights)
    if layer > len(names):
        raise ConfigError(f"--layer: {layer} is more than the {len(names)} layers")
    chosen = {name: weights[name] for name in (names[layer - 1 : layer] if layer else names)}
    heads = min(each.shape[0] for each in chosen.values())
    if head > heads:
        raise ConfigError(f"--head: {head} is more than the {heads} heads")
    return {
        f"{name} head {head}" if head else name: each[head - 1 : head] if head else each
        for name, each in chosen.items()
    }
