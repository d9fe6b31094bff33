"""Readings of one text by a model: attention, rollout, gradients, probabilities (NumPy)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.config.data import padded_width
from transformer_jax.models.inspection import (
    ATTENTION_KINDS,
    AttentionRecord,
    attention_records,
    gradients_times_inputs,
    head_counts,
    layers_by_kind,
    target_log_probs,
    without_head,
)
from transformer_jax.models.interface import Module
from transformer_jax.sequence_types import Tokens
from transformer_jax.tools.explorer.head_statistics import entropies

SHARE_OF_ATTENTION = 0.5


@dataclass(frozen=True)
class AttentionReading:
    """One kind of attention (``encoder``, ``decoder`` or ``cross``) in all layers and heads.

    Attributes:
        rows: The axis of the queries, ``source``, ``target`` or ``input``; ``columns`` of the keys.
        weights: [L, H, Q, M].
        value_norms: [L, H, M], norms of the transformed values. A weight times its norm is the norm
            of the head's contribution (Kobayashi et al. 2020, section 3.2).
        value_cosines: [L, pairs, M], cosines between the transformed values of the heads (1, 0),
            (2, 0), (2, 1), ..., which determine the norm of the sum over heads.
        rollout: [L, Q, M] (Abnar and Zuidema 2020), None unless all layers have self-attention.
    """

    kind: str
    rows: str
    columns: str
    weights: np.ndarray
    value_norms: np.ndarray
    value_cosines: np.ndarray
    rollout: np.ndarray | None = None


@dataclass(frozen=True)
class Reading:
    """A text as one model reads it.

    Attributes:
        tokens: Pieces of the axes ``source``, ``target`` and ``input``.
        gradients: [Q, M] by kind, gradient x input of the log-probability of the token of a row.
        log_probs: [T], log-probabilities of the target tokens.
        tree: Depth, text and index of the target token of each node of a parse.
        importance: [L, H] by kind, the loss of the target in nats without the head minus the loss
            with it (Michel et al. 2019, section 3.2, with the loss as the score).
    """

    text: str
    translation: str | None
    tokens: dict[str, list[str]]
    attentions: list[AttentionReading]
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    log_probs: list[float] = field(default_factory=list)
    tree: list[tuple[int, str, int]] = field(default_factory=list)
    importance: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def is_finite(self) -> bool:
        arrays = [np.asarray(self.log_probs), *self.gradients.values(), *self.importance.values()]
        for attention in self.attentions:
            arrays += [attention.weights, attention.value_norms, attention.value_cosines]
        return all(bool(np.isfinite(values).all()) for values in arrays)


class TextReader:
    """Teacher-forced passes of one model over one text at a time, compiled for each width.

    ``longest``: maximum number of positions of the model, or None.
    """

    def __init__(self, model: Module, longest: int | None = None) -> None:
        self._longest = longest
        self._records = jax.jit(partial(attention_records, model))
        self._log_probs = jax.jit(partial(target_log_probs, model))
        self._gradients = jax.jit(partial(gradients_times_inputs, model))

    def __call__(
        self,
        params: PyTree,
        text: str,
        translation: str | None,
        tokens: dict[str, list[str]],
        sides: Sequence[list[int]],
        *,
        with_gradients: bool = True,
        with_importance: bool = False,
    ) -> Reading:
        """Read the ids of all sides, the target last. ``tokens`` are the pieces of every axis."""
        inputs = [self._padded(ids) for ids in sides]
        lengths = [len(ids) for ids in sides]
        records = jax.device_get(self._records(params, *inputs))
        log_probs = np.asarray(self._log_probs(params, *inputs))[: lengths[-1]]
        gradients: dict[str, np.ndarray] = {}
        if with_gradients:
            products = jax.device_get(self._gradients(params, *inputs))
            for kind, values, length in zip(("cross", "decoder")[-len(sides) :], products, lengths, strict=True):
                gradients[kind] = np.asarray(values, np.float32)[: lengths[-1], :length]
        importance: dict[str, np.ndarray] = {}
        if with_importance:
            changes = {
                path: [
                    log_probs - self._log_probs(without_head(params, path, head), *inputs)[: lengths[-1]]
                    for head in range(count)
                ]
                for path, count in head_counts(params).items()
                if path in records
            }
            importance = {
                kind: np.sum(list(layers.values()), axis=-1) for kind, layers in layers_by_kind(changes).items()
            }
        readings = attention_readings(records, {name: len(pieces) for name, pieces in tokens.items()})
        readings = with_rollout(readings, sum(name.startswith("decoder_layers_") for name in params))
        return Reading(text, translation, tokens, readings, gradients, log_probs.tolist(), importance=importance)

    def _padded(self, ids: list[int]) -> Tokens:
        width = padded_width(len(ids), self._longest)
        return Tokens.from_ids(np.pad(np.asarray([ids], np.int32), ((0, 0), (0, width - len(ids)))))


# Titles of the curves over checkpoints, of every head.
CURVES = {
    "entropy": "entropy in bits, mean over the rows",
    "importance": "importance: rise of the loss without the head, in nats",
}


def opening(reading: Reading) -> dict[str, int | str]:
    """Return the attention that the page shows first: ``kind``, ``layer``, ``head`` and ``why``.

    Layer and head count from 1, and head 0 is all heads. With a source it is the cross-attention
    head nearest to a one-to-one alignment of words: rows and columns of tokens with a letter or
    digit have the largest maxima. Without a source it is the last layer with all heads.
    """
    if not reading.attentions:
        return {}
    shown = next((attention for attention in reading.attentions if attention.kind == "cross"), reading.attentions[-1])
    layers, heads = shown.weights.shape[:2]
    rows, columns = (_words(reading.tokens[side]) for side in (shown.rows, shown.columns))
    if shown.kind != "cross" or not rows or not columns:
        return {"kind": shown.kind, "layer": layers, "head": 0}
    of_words = shown.weights[:, :, rows][..., columns]
    scores = of_words.max(axis=-1).mean(axis=-1) * of_words.max(axis=-2).mean(axis=-1)
    layer, head = np.unravel_index(np.argmax(scores), scores.shape)
    why = f"of {layers * heads} heads the nearest to a word alignment" if layers * heads > 1 else ""
    return {"kind": shown.kind, "layer": int(layer) + 1, "head": int(head) + 1, "why": why}


def _words(pieces: Sequence[str]) -> list[int]:
    """Return the indices of tokens with a letter or digit that are not special."""
    is_special = re.compile("<.*>").fullmatch
    return [index for index, piece in enumerate(pieces) if any(map(str.isalnum, piece)) and not is_special(piece)]


def curve_points(reading: Reading) -> dict[str, dict[str, np.ndarray]]:
    """Return the values [L, H] of ``CURVES`` on one text, by kind of attention."""
    points = {}
    for attention in reading.attentions:
        entropy = np.asarray(entropies(jnp.asarray(attention.weights))).mean(axis=-1)
        # Negative weights have no entropy.
        points[attention.kind] = {"entropy": entropy} if np.isfinite(entropy).all() else {}
        if attention.kind in reading.importance:
            points[attention.kind]["importance"] = reading.importance[attention.kind]
    return points


def attention_readings(records: Mapping[str, AttentionRecord], lengths: Mapping[str, int]) -> list[AttentionReading]:
    """Return all kinds of attention in the first row of a batch, cut to the lengths of the axes."""
    readings = []
    for kind, layers in layers_by_kind(records).items():
        rows, columns = ATTENTION_KINDS[kind].rows, ATTENTION_KINDS[kind].columns
        num_rows, num_columns = lengths[rows], lengths[columns]
        weights = [np.asarray(record.weights[0, :, :num_rows, :num_columns], np.float32) for record in layers.values()]
        transformed_LHMD = np.stack(
            [np.asarray(record.transformed[0, :, :num_columns], np.float32) for record in layers.values()]
        )
        norms_LHM = np.linalg.norm(transformed_LHMD, axis=-1)
        first, second = np.tril_indices(norms_LHM.shape[1], -1)
        products = np.einsum("LPMD,LPMD->LPM", transformed_LHMD[:, first], transformed_LHMD[:, second])
        cosines = products / np.maximum(norms_LHM[:, first] * norms_LHM[:, second], np.finfo(np.float32).tiny)
        readings.append(AttentionReading(kind, rows, columns, np.stack(weights), norms_LHM, cosines))
    return readings


def with_rollout(readings: list[AttentionReading], depth: int) -> list[AttentionReading]:
    """Return the readings with rollouts if all ``depth`` decoder layers have self-attention."""
    weights = {reading.kind: reading.weights for reading in readings}
    rollouts: dict[str, np.ndarray] = {}
    if len(weights.get("decoder", ())) < depth:
        return readings
    if weights.keys() == {"decoder"}:
        rollouts["decoder"] = rollout(weights["decoder"])
    elif weights.keys() == ATTENTION_KINDS.keys():
        rollouts["encoder"] = rollout(weights["encoder"])
        whole = decoder_rollout(weights["decoder"], weights["cross"], rollouts["encoder"][-1])
        rollouts["decoder"], rollouts["cross"] = whole
    return [replace(reading, rollout=rollouts.get(reading.kind)) for reading in readings]


def _with_residual(weights_LHQM: np.ndarray) -> np.ndarray:
    """Return 0.5 A + 0.5 I with the mean A over heads: [L, H, N, N] to [L, N, N] (section 3)."""
    mean = weights_LHQM.mean(axis=1)
    return SHARE_OF_ATTENTION * mean + (1 - SHARE_OF_ATTENTION) * np.eye(mean.shape[-1])


def rollout(weights_LHQM: np.ndarray) -> np.ndarray:
    """Return the rollout from every layer to the embeddings: [L, H, N, N] to [L, N, N]."""
    layers = [np.eye(weights_LHQM.shape[-1])]
    for mixing in _with_residual(weights_LHQM):
        layers.append(mixing @ layers[-1])
    return np.stack(layers[1:])


def decoder_rollout(
    self_LHTT: np.ndarray, cross_LHTS: np.ndarray, source_SS: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rollout from decoder layers to the embeddings of both sides: [L, T, T], [L, T, S].

    The paper defines rollout for self-attention only. Here a layer first mixes target states by
    self-attention, then averages the state and the cross-attention to the encoder output.
    ``source_SS``: rollout of the encoder.
    """
    to_target, to_source = np.eye(self_LHTT.shape[-1]), np.zeros(cross_LHTS.shape[-2:])
    layers = []
    for to_self, cross in zip(_with_residual(self_LHTT), cross_LHTS.mean(axis=1), strict=True):
        to_target, to_source = to_self @ to_target, to_self @ to_source
        kept = 1 - SHARE_OF_ATTENTION
        to_target, to_source = kept * to_target, kept * to_source + SHARE_OF_ATTENTION * cross @ source_SS
        layers.append((to_target, to_source))
    return np.stack([target for target, _ in layers]), np.stack([source for _, source in layers])
