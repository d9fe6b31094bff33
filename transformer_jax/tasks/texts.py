"""What a trained model computes for given text: log-probabilities of its tokens, and attention weights by kind."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.config import ConfigError
from transformer_jax.models.inspection import ATTENTION_KINDS, layers_by_kind

READING_TOKENS = 1024
"""Positions whose logits are in memory at once; a longer text is read alone."""


class TokenScores(NamedTuple):
    """Tokens of a text, EOS included, and the natural logarithm of the probability of each after those before it."""

    pieces: list[str]
    log_probs: list[float]

    @property
    def log_prob(self) -> float:
        """The natural logarithm of the probability of the whole text."""
        return sum(self.log_probs)

    @property
    def perplexity(self) -> float:
        """Per token: exp(-log-probability / number of tokens)."""
        return math.exp(-self.log_prob / len(self.log_probs))


class KindWeights(NamedTuple):
    """Weights [H, Q, M] of the layers of one kind of attention by name; the pieces of queries (rows) and keys (columns)."""

    weights: dict[str, np.ndarray]
    rows: list[str]
    columns: list[str]


class TextAttention(NamedTuple):
    """A text, its translation if there is one, and all attention of a teacher-forced pass by kind, cross attention first.

    Row ``i`` of a decoder is the position that predicts piece ``i``.
    """

    text: str
    translation: str | None
    kinds: dict[str, KindWeights]

    @property
    def title(self) -> str:
        """The text, and its translation in a second line."""
        return self.text if self.translation is None else f"{self.text}\n{self.translation}"


def weights_by_kind(maps: Mapping[str, np.ndarray], axes: Mapping[str, Sequence[str]]) -> dict[str, KindWeights]:
    """The maps [1, H, Q, M] of ``attention_maps`` by kind, cut to the pieces of ``axes``: source, target and input."""
    found = {}
    for kind, layers in sorted(layers_by_kind(maps).items(), key=lambda each: each[0] != "cross"):
        prefix, _, rows, columns = ATTENTION_KINDS[kind]
        # A recurrent decoder has one attention, whatever its layers.
        is_layered = any("layers_" in path for path in layers)
        names = [f"{prefix} layer {index + 1}" if is_layered else prefix for index in range(len(layers))]
        weights = [each[0, :, : len(axes[rows]), : len(axes[columns])] for each in layers.values()]
        found[kind] = KindWeights(dict(zip(names, weights, strict=True)), [*axes[rows]], [*axes[columns]])
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
