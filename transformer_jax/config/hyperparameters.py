"""Numbers of settings that the compiled training step takes as arguments."""

import copy
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from transformer_jax.config.checks import declared
from transformer_jax.config.parts import Parts
from transformer_jax.config.update_schedules import Number, Scheduled


class Rates(NamedTuple):
    """Probabilities of a model in training, by setting name; None for 0 or no such setting."""

    dropout: Number = None
    embedding_dropout: Number = None
    attention_dropout: Number = None
    activation_dropout: Number = None
    scheduled_sampling: Number = None


class Hyperparameters(NamedTuple):
    """Hyperparameters traced into the training step, by setting name."""

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


def _traced(block: Any, of_schedule: Callable[[Scheduled], Number] = float) -> dict[str, Number]:
    """Return the traced settings of a block; None for those not in the compiled step."""
    numbers: dict[str, Number] = {}
    for name, declaration in declared(type(block)).items():
        if program := declaration.facts.get("program"):
            value = getattr(block, name)
            is_scheduled, zero = isinstance(value, Scheduled), None if program == "optional" else 0.0
            numbers[name] = of_schedule(value) if is_scheduled else float(value) or zero
    return numbers


def rates_of(model: Any) -> Rates:
    return Rates(**_traced(model))


def hyperparameters_of(config: Any, of_schedule: Callable[[Scheduled], Number] = float) -> Hyperparameters:
    """Return the numbers of the settings. A schedule of the update is its last value."""
    blocks = config.optimizer, config.training, config.model, *config.parts.values()
    optimizer, training, rates, *of_parts = (_traced(block, of_schedule) for block in blocks)
    parts = {name: numbers for name, numbers in zip(config.parts, of_parts, strict=True) if numbers}
    return Hyperparameters(**optimizer, **training, rates=Rates(**rates), parts=parts)


def scheduled_hyperparameters_of(config: Any) -> Hyperparameters:
    """Return the arguments of the training step, which computes schedules at its update."""
    return hyperparameters_of(config, attrgetter("ramp"))


def parts_with(config: Any, hyperparameters: Hyperparameters) -> Parts:
    """Return the settings of parts with the numbers of ``hyperparameters``, which may be traced."""
    parts = dict(config.parts)
    for name, numbers in hyperparameters.parts.items():
        # Not dataclasses.replace, whose __post_init__ would check traced numbers.
        parts[name] = copy.copy(parts[name])
        for field, number in numbers.items():
            object.__setattr__(parts[name], field, number)
    return Parts(parts)
