"""Results of a trained model for given text: log-probabilities of its tokens, and attention weights by kind."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import AnyArray, Array, Float, Int, PyTree
from transformer_jax.models.inspection import ATTENTION_KINDS, attention_maps, layer_number, layers_by_kind
from transformer_jax.models.interface import Module
from transformer_jax.notebook import table
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.losses import perplexity

READING_TOKENS = 1024
"""Positions of a batch whose logits are in memory at once; a longer text is a batch of its own."""


class TokenScores(NamedTuple):
    """Tokens of a text, EOS included, and the natural logarithm of the probability of each, given the tokens before it."""

    pieces: list[str]
    log_probs: list[float]

    @property
    def log_prob(self) -> float:
        """The natural logarithm of the probability of the text."""
        return sum(self.log_probs)

    @property
    def perplexity(self) -> float:
        """Per token: exp(-log-probability / number of tokens)."""
        return perplexity(-self.log_prob, len(self.log_probs))

    def _repr_html_(self) -> str:
        rows = [(piece, f"{log_prob:.3f}") for piece, log_prob in zip(self.pieces, self.log_probs, strict=True)]
        total = ("sum", f"{self.log_prob:.3f}"), ("perplexity", f"{self.perplexity:.3f}")
        return table([*rows, *total], ("token", "log-probability"))


def token_log_probs(logits: Float[Array, "B T V"], ids: Int[AnyArray, "B T"]) -> Float[Array, "B T"]:
    """The log-probability of each token."""
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, ids[:, :, None], axis=2)[:, :, 0]
    return chosen - jax.nn.logsumexp(logits, axis=2)


class KindWeights(NamedTuple):
    """Weights [H, Q, M] of each layer of one kind of attention, by name; pieces of the queries (rows) and keys (columns).

    ``layers``: the number of each of these layers in the model, from 1.
    """

    weights: dict[str, np.ndarray]
    rows: list[str]
    columns: list[str]
    layers: list[int]


class TextAttention(NamedTuple):
    """A text, its translation if there is one, and all attention of a teacher-forced pass by kind, cross attention first.

    Row ``i`` of a decoder's weights belongs to the prediction of target piece ``i``.
    """

    text: str
    translation: str | None
    kinds: dict[str, KindWeights]

    @property
    def title(self) -> str:
        """The text, and its translation on a second line."""
        return self.text if self.translation is None else f"{self.text}\n{self.translation}"


def weights_by_kind(
    model: Module, params: PyTree, sides: Sequence[list[int]], axes: Mapping[str, Sequence[str]]
) -> dict[str, KindWeights]:
    """All attention of a teacher-forced pass by kind.

    ``sides``: ids of source and target, or of one text; ``axes``: the pieces of source, target and decoder input.
    """
    tokens = (Tokens.from_ids(np.asarray([ids], np.int32)) for ids in sides)
    maps = jax.device_get(jax.jit(partial(attention_maps, model))(params, *tokens))
    found = {}
    for kind, layers in sorted(layers_by_kind(maps).items(), key=lambda each: each[0] != "cross"):
        prefix, _, rows, columns = ATTENTION_KINDS[kind]
        # A recurrent decoder has one attention for all layers.
        is_layered = any("layers_" in path for path in layers)
        numbers = [layer_number(path) for path in layers]
        names = [f"{prefix} layer {number}" if is_layered else prefix for number in numbers]
        weights = [each[0, :, : len(axes[rows]), : len(axes[columns])] for each in layers.values()]
        found[kind] = KindWeights(dict(zip(names, weights, strict=True)), [*axes[rows]], [*axes[columns]], numbers)
    return found
