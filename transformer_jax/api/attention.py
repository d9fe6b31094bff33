"""Attention weights of a translation or a text, as arrays with named axes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.config import ConfigError


class AttentionLayer(NamedTuple):
    """Weights [head, query, key] of one layer, before dropout; ``queries`` and ``keys`` are the pieces of the axes.

    ``kind`` is ``cross`` (target to source), ``encoder`` (source to source) or ``decoder`` (target to target); ``layer`` counts
    from 1. Row i of a decoder's weights belongs to the prediction of target piece i.
    """

    kind: str
    layer: int
    weights: np.ndarray
    queries: list[str]
    keys: list[str]

    @property
    def mean(self) -> np.ndarray:
        """The mean over the heads [query, key]."""
        return self.weights.mean(axis=0)


class Attention(Sequence[AttentionLayer]):
    """The attention of a model between a source and its translation, or inside the text of a language model, whose
    ``translation`` is None: a sequence of layers, first layer first.
    """

    def __init__(self, source: str, translation: str | None, layers: Sequence[AttentionLayer]) -> None:
        self.source, self.translation, self.layers = source, translation, tuple(layers)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[AttentionLayer]:
        return iter(self.layers)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{each.kind} {each.layer} {list(each.weights.shape)}" for each in self.layers)
        target = "" if self.translation is None else f" -> {self.translation!r}"
        return f"Attention({self.source!r}{target}: {shapes})"

    def of(self, kind: str) -> "Attention":
        """The layers of one kind; raises ConfigError when the model has none."""
        found = [each for each in self.layers if each.kind == kind]
        if not found:
            kinds = dict.fromkeys(each.kind for each in self.layers)
            raise ConfigError(f"kind: {kind!r} is not one of {', '.join(kinds) or 'none at all'}")
        return Attention(self.source, self.translation, found)

    def draw(self, path: str | Path, kind: str | None = None) -> Path:
        """A picture of every layer and head of one kind, by default the first there is; returns its path."""
        from transformer_jax.tools.pictures.attention_maps import draw_attention

        layers = self.of(kind or self.layers[0].kind).layers
        weights = {f"{each.kind} layer {each.layer}": each.weights for each in layers}
        title = self.source if self.translation is None else f"{self.source}\n{self.translation}"
        return draw_attention(weights, layers[0].queries, layers[0].keys, path, title=title)
