"""One text as a trained model reads it: token axes, and arrays that name theirs."""

from dataclasses import dataclass, field

import numpy as np

LAYER, HEAD = "layer", "head"


@dataclass(frozen=True)
class NamedArray:
    """``values`` whose axes have names: ``layer``, ``head`` or a token axis of the reading."""

    axes: tuple[str, ...]
    values: np.ndarray

    def __post_init__(self) -> None:
        if len(self.axes) != self.values.ndim:
            raise ValueError(f"axes {self.axes} do not fit an array of shape {self.values.shape}")


@dataclass(frozen=True)
class AttentionReading:
    """One kind of attention (``encoder``, ``decoder`` or ``cross``): every layer and head, from ``rows`` to ``columns``.

    ``weights`` (layer, head, rows, columns). ``value_norms`` (layer, head, columns): the norm of a transformed value, which
    times the weight is the norm of what a head adds (Kobayashi et al. 2020, section 3.2). ``value_cosines`` (layer, pair,
    columns): the cosine of the transformed values of two heads, (1, 0), (2, 0), (2, 1), ...: with them the norm of what all
    heads add together follows, and is not stored. ``rollout`` (layer, rows, columns): Abnar and Zuidema 2020; None where there
    is no stack.
    """

    kind: str
    rows: str
    columns: str
    weights: NamedArray
    value_norms: NamedArray
    value_cosines: NamedArray
    rollout: NamedArray | None = None


@dataclass(frozen=True)
class Reading:
    """A text and, in translation, its translation: tokens of every axis, attention, gradients, probabilities.

    ``gradients`` by kind of attention, with the same axes: gradient x input of the log-probability of a row's token.
    ``log_probs`` of the tokens of the axis ``target``.
    """

    text: str
    translation: str | None
    tokens: dict[str, list[str]]
    attentions: list[AttentionReading]
    gradients: dict[str, NamedArray] = field(default_factory=dict)
    log_probs: list[float] = field(default_factory=list)

    @property
    def is_finite(self) -> bool:
        """Whether every number is."""
        found = [np.asarray(self.log_probs), *(each.values for each in self.gradients.values())]
        for each in self.attentions:
            found += [each.weights.values, each.value_norms.values, each.value_cosines.values]
        return all(bool(np.isfinite(values).all()) for values in found)
