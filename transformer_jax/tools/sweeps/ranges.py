"""Ranges of the settings of a sweep."""

import math
from dataclasses import dataclass

from transformer_jax.config import ConfigError

Value = str | int | float | bool


@dataclass(frozen=True)
class Choice:
    """One of some values, in no order."""

    values: tuple[Value, ...]

    def __init__(self, *values: Value) -> None:
        object.__setattr__(self, "values", values)
        if len(set(values)) < len(values) or not values:
            raise ConfigError(f"Choice{values}: needs values, each once")

    def ends(self) -> tuple[Value, ...]:
        """Values with which the settings must be possible."""
        return self.values


@dataclass(frozen=True)
class Uniform:
    """A number from ``low`` to ``high``, every one as likely."""

    low: float | int
    high: float | int

    def __post_init__(self) -> None:
        _require_interval(self, self.low, self.high, least=-math.inf)

    def ends(self) -> tuple[Value, ...]:
        """The two ends."""
        return float(self.low), float(self.high)


@dataclass(frozen=True)
class LogUniform:
    """A number from ``low`` to ``high``, its logarithm evenly spread: for rates."""

    low: float | int
    high: float | int

    def __post_init__(self) -> None:
        _require_interval(self, self.low, self.high, least=math.ulp(0.0))

    def ends(self) -> tuple[Value, ...]:
        """The two ends."""
        return float(self.low), float(self.high)


@dataclass(frozen=True)
class Integers:
    """A whole number from ``low`` to ``high``, both possible, in steps of ``step`` from ``low``."""

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        _require_interval(self, self.low, self.high, least=-math.inf)
        if self.step < 1 or (self.high - self.low) % self.step:
            raise ConfigError(f"{self}: steps of {self.step} do not lead from {self.low} to {self.high}")

    def ends(self) -> tuple[Value, ...]:
        """The two ends."""
        return self.low, self.high


Range = Choice | Uniform | LogUniform | Integers


def _require_interval(owner: object, low: float | int, high: float | int, least: float) -> None:
    if not least <= low < high < math.inf:
        raise ConfigError(f"{owner}: needs {'' if least < 0 else '0 < '}low < high, both finite")
