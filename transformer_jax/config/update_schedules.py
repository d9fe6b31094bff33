"""Settings that depend on the update: ``linear(0,1e-4)`` in place of a traced number."""

import math
import re
from typing import Any, NamedTuple

from transformer_jax.errors import ConfigError, nearest

Number = Any
"""A float, or a traced float32 scalar. None if the value 0 removes a part of the program."""


class Ramp(NamedTuple):
    """From ``start`` at update ``first`` to ``end`` at update ``last``, constant outside.

    A ``last`` of None is the last update of the run.
    """

    start: Number
    end: Number
    first: Number = 1.0
    last: Number | None = None

    def at(self, update: Any, num_updates: Number, xp: Any) -> Any:
        """Return the value at an update, counted from 1, computed by the NumPy ``xp``."""
        last = num_updates if self.last is None else self.last
        done = self.curve(xp.clip((update - self.first) / xp.maximum(last - self.first, 1.0), 0.0, 1.0), xp)
        return self.start * (1.0 - done) + self.end * done

    @staticmethod
    def curve(done: Any, xp: Any) -> Any:
        """Return the share of the way from ``start`` to ``end``."""
        return done


class Cosine(Ramp):
    curve = staticmethod(lambda done, xp: 0.5 * (1.0 - xp.cos(math.pi * done)))


FORMS: dict[str, tuple[type[Ramp], str]] = {
    "linear": (Ramp, "linear(START,END) or linear(START,END,FIRST,LAST)"),
    "cosine": (Cosine, "cosine(START,END) or cosine(START,END,FIRST,LAST)"),
    "step": (Ramp, "step(START,END,UPDATE)"),
}
"""Schedules by name. FIRST < LAST are updates, by default the first and last of the run."""

NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
NUMBERS = re.compile(rf"{NUMBER}(,{NUMBER})*\)")


class Scheduled(float):
    """A setting that depends on the update. As a number it is the last value, for evaluation."""

    ramp: Ramp
    text: str

    def __new__(cls, text: str, key: str = "") -> "Scheduled":
        """Parse the value of the setting ``key``. Raises ConfigError unless it is a schedule."""
        name, _, arguments = "".join(text.split()).partition("(")
        if name not in FORMS:
            near, forms = nearest(name, FORMS), "; ".join(form for _, form in FORMS.values())
            problem = f"{text!r} is no schedule"
            raise ConfigError(key, problem, f"did you mean {near}(...)? " * bool(near) + f"use {forms}")
        kind, form = FORMS[name]
        numbers = [*map(float, arguments[:-1].split(","))] if NUMBERS.fullmatch(arguments) else []
        written = f"{name}({','.join(repr(number).removesuffix('.0') for number in numbers)})"
        if name == "step":
            numbers[2:] = [update - before for update in numbers[2:] for before in (1.0, 0.0)]
        ends = numbers[2:] or [1.0, 2.0]
        is_valid = len(numbers) in ((4,) if name == "step" else (2, 4)) and all(map(math.isfinite, numbers))
        if not is_valid or not all(map(float.is_integer, ends)) or not 1 <= ends[0] < ends[1]:
            remedy = "updates are whole numbers from 1, the first below the last"
            raise ConfigError(key, f"{text!r} is not {form}", remedy)
        schedule = super().__new__(cls, numbers[1])
        schedule.ramp, schedule.text = kind(*numbers), written
        return schedule

    def __reduce__(self) -> tuple:
        return Scheduled, (self.text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scheduled) and self.text == other.text

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)

    def __bool__(self) -> bool:
        return bool(self.ramp.start or self.ramp.end)

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__
