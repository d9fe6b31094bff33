"""Readings of one text by a trained model: attention, rollout, gradients and probabilities as NumPy arrays."""

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
    """One kind of attention (``encoder``, ``decoder`` or ``cross``) in all layers and heads, from ``rows`` to ``columns``.

    ``weights`` [L, H, Q, M]. ``value_norms`` [L, H, M]: norms of the transformed values; multiplied
    by the weight, the norm of the head's contribution (Kobayashi et al. 2020, section 3.2).
    ``value_cosines`` [L, pairs, M]: cosines between the transformed values of two heads, (1, 0),
    (2, 0), (2, 1), ..., which determine the norm of the sum over heads. ``rollout`` [L, Q, M]
    (Abnar and Zuidema 2020): None unless all layers have self-attention.
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
    """A text, its translation if any, and the tokens of every axis, attention, gradients and probabilities.

    ``gradients`` [Q, M] by kind of attention: gradient x input of the log-probability of the token
    of each row. ``log_probs`` [T]: of the tokens of the axis ``target``. ``tree``: of a parser,
    depth, text and index of the target token of each node. ``importance`` [L, H] by kind, of a
    model with heads: the loss of the target, in nats, without the head minus the loss with it
    (Michel et al. 2019, section 3.2, with the loss as the score).
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
        """Whether every number is finite."""
        found = [np.asarray(self.log_probs), *self.gradients.values(), *self.importance.values()]
        for each in self.attentions:
            found += [each.weights, each.value_norms, each.value_cosines]
        return all(bool(np.isfinite(values).all()) for values in found)


class TextReader:
    """Teacher-forced passes of one model over one text at a time; keeps one compiled program for each width.

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
        """Read the ids of all sides, the target last; ``tokens`` are the pieces of every axis."""
        inputs = [self._padded(ids) for ids in sides]
        lengths = [len(ids) for ids in sides]
        records = jax.device_get(self._records(params, *inputs))
        log_probs = np.asarray(self._log_probs(params, *inputs))[: lengths[-1]]
        gradients: dict[str, np.ndarray] = {}
        if with_gradients:
            found = jax.device_get(self._gradients(params, *inputs))
            for kind, values, length in zip(("cross", "decoder")[-len(sides) :], found, lengths, strict=True):
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
            importance = {kind: np.sum(list(each.values()), axis=-1) for kind, each in layers_by_kind(changes).items()}
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
    """Return the attention with which the page opens: ``kind``, ``layer`` and ``head``, from 1, 0 for all heads, and ``why``.

    Of attention to a source, the head that is nearest to a one-to-one alignment of words: its rows
    and its columns, of tokens with a letter or digit, have the largest maxima. Without a source,
    all heads of the last layer.
    """
    if not reading.attentions:
        return {}
    shown = next((each for each in reading.attentions if each.kind == "cross"), reading.attentions[-1])
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
    """Return the indices of tokens with a letter or digit, without special ones."""
    is_special = re.compile("<.*>").fullmatch
    return [index for index, piece in enumerate(pieces) if any(map(str.isalnum, piece)) and not is_special(piece)]


def curve_points(reading: Reading) -> dict[str, dict[str, np.ndarray]]:
    """For every kind of attention, entropy and importance [L, H] of every head on one text, see ``CURVES``."""
    points = {}
    for each in reading.attentions:
        entropy = np.asarray(entropies(jnp.asarray(each.weights))).mean(axis=-1)
        # Negative weights have none.
        points[each.kind] = {"entropy": entropy} if np.isfinite(entropy).all() else {}
        if each.kind in reading.importance:
            points[each.kind]["importance"] = reading.importance[each.kind]
    return points


def attention_readings(records: Mapping[str, AttentionRecord], lengths: Mapping[str, int]) -> list[AttentionReading]:
    """Readings of the first row of a batch for every kind of attention, truncated to the ``lengths`` of the token axes."""
    readings = []
    for kind, layers in layers_by_kind(records).items():
        rows, columns = ATTENTION_KINDS[kind].rows, ATTENTION_KINDS[kind].columns
        num_rows, num_columns = lengths[rows], lengths[columns]
        weights = [np.asarray(each.weights[0, :, :num_rows, :num_columns], np.float32) for each in layers.values()]
        transformed_LHMD = np.stack(
            [np.asarray(each.transformed[0, :, :num_columns], np.float32) for each in layers.values()]
        )
        norms_LHM = np.linalg.norm(transformed_LHMD, axis=-1)
        first, second = np.tril_indices(norms_LHM.shape[1], -1)
        products = np.einsum("LPMD,LPMD->LPM", transformed_LHMD[:, first], transformed_LHMD[:, second])
        cosines = products / np.maximum(norms_LHM[:, first] * norms_LHM[:, second], np.finfo(np.float32).tiny)
        readings.append(AttentionReading(kind, rows, columns, np.stack(weights), norms_LHM, cosines))
    return readings


def with_rollout(readings: list[AttentionReading], depth: int) -> list[AttentionReading]:
    """Return the readings with their rollouts; none unless all ``depth`` layers of the decoder have self-attention."""
    weights = {each.kind: each.weights for each in readings}
    found: dict[str, np.ndarray] = {}
    if len(weights.get("decoder", ())) < depth:
        return readings
    if weights.keys() == {"decoder"}:
        found["decoder"] = rollout(weights["decoder"])
    elif weights.keys() == ATTENTION_KINDS.keys():
        found["encoder"] = rollout(weights["encoder"])
        found["decoder"], found["cross"] = decoder_rollout(weights["decoder"], weights["cross"], found["encoder"][-1])
    return [replace(each, rollout=found.get(each.kind)) for each in readings]


def _with_residual(weights_LHQM: np.ndarray) -> np.ndarray:
    """0.5 A + 0.5 I of every layer, where A is the mean over heads: [L, H, N, N] to [L, N, N] (section 3)."""
    mean = weights_LHQM.mean(axis=1)
    return SHARE_OF_ATTENTION * mean + (1 - SHARE_OF_ATTENTION) * np.eye(mean.shape[-1])


def rollout(weights_LHQM: np.ndarray) -> np.ndarray:
    """Rollout from every layer to the embeddings: [L, H, N, N] to [L, N, N] (Abnar and Zuidema, section 3)."""
    layers = [np.eye(weights_LHQM.shape[-1])]
    for mixing in _with_residual(weights_LHQM):
        layers.append(mixing @ layers[-1])
    return np.stack(layers[1:])


def decoder_rollout(
    own_LHTT: np.ndarray, cross_LHTS: np.ndarray, source_SS: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rollout from every decoder layer to the embeddings of both sides: [L, T, T] and [L, T, S].

    The paper defines rollout for self-attention only. Here a layer first mixes target states by
    self-attention, then averages the state and the cross-attention to the encoder output.
    ``source_SS``: rollout of the encoder.
    """
    to_target, to_source = np.eye(own_LHTT.shape[-1]), np.zeros(cross_LHTS.shape[-2:])
    layers = []
    for own, cross in zip(_with_residual(own_LHTT), cross_LHTS.mean(axis=1), strict=True):
        to_target, to_source = own @ to_target, own @ to_source
        kept = 1 - SHARE_OF_ATTENTION
        to_target, to_source = kept * to_target, kept * to_source + SHARE_OF_ATTENTION * cross @ source_SS
        layers.append((to_target, to_source))
    return np.stack([target for target, _ in layers]), np.stack([source for _, source in layers])
