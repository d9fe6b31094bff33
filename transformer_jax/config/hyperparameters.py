"""Numbers of settings that the compiled training step takes as arguments."""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from transformer_jax.config.checks import declared
from transformer_jax.config.parts import Parts

Number = Any
"""A float, or a traced float32 scalar; None if the value 0 removes a part of the program."""


class Rates(NamedTuple):
    """Probabilities of a model in training, by setting name; None if the model has no such setting or it is 0."""

    dropout: Number = None
    embedding_dropout: Number = None
    attention_dropout: Number = None
    activation_dropout: Number = None
    scheduled_sampling: Number = None


class Hyperparameters(NamedTuple):
    """Hyperparameters traced into the training step, by setting name; ``parts``: traced settings by part name."""

    learning_rate: Number
    warmup_updates: Number
    num_updates: Number
    b1: Number
    b2: Number
    epsilon: Number
    weight_decay: Number
    clip_norm: Number
    label_smoothing: Number
    rates: Rates
    parts: Mapping[str, Mapping[str, Number]]


def _traced(block: Any) -> dict[str, float | None]:
    """Return the traced settings of a block; None for those not in the compiled step."""
    numbers: dict[str, float | None] = {}
    for name, each in declared(type(block)).items():
        if program := each.facts.get("program"):
            numbers[name] = float(getattr(block, name)) or (None if program == "optional" else 0.0)
    return numbers


def rates_of(model: Any) -> Rates:
    return Rates(**_traced(model))


def hyperparameters_of(config: Any) -> Hyperparameters:
    parts = {name: numbers for name, settings in config.parts.items() if (numbers := _traced(settings))}
    numbers = _traced(config.optimizer) | _traced(config.training)
    return Hyperparameters(**numbers, rates=rates_of(config.model), parts=parts)


def parts_with(config: Any, hyperparameters: Hyperparameters) -> Parts:
    """Return the settings of parts with the numbers of ``hyperparameters``, which may be traced."""
    parts = dict(config.parts)
    for name, numbers in hyperparameters.parts.items():
        # Not dataclasses.replace, whose __post_init__ would check traced numbers.
        parts[name] = copy.copy(parts[name])
        for field, number in numbers.items():
            object.__setattr__(parts[name], field, number)
    return Parts(parts)
