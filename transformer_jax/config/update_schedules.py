"""Settings that depend on the update: ``linear(0,1e-4)`` in place of a number that the compiled step takes as an argument."""

import math
import re
from typing import Any, NamedTuple

from transformer_jax.errors import ConfigError, nearest

Number = Any
"""A float, or a traced float32 scalar; None if the value 0 removes a part of the program."""


class Ramp(NamedTuple):
    """From ``start`` at update ``first`` to ``end`` at update ``last``, the last of the run if None; constant outside."""

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
        """The share of the way from ``start`` to ``end``."""
        return done


class Cosine(Ramp):
    curve = staticmethod(lambda done, xp: 0.5 * (1.0 - xp.cos(math.pi * done)))


FORMS: dict[str, tuple[type[Ramp], str]] = {
    "linear": (Ramp, "linear(START,END) or linear(START,END,FIRST,LAST)"),
    "cosine": (Cosine, "cosine(START,END) or cosine(START,END,FIRST,LAST)"),
    "step": (Ramp, "step(START,END,UPDATE)"),
}
"""Schedules by name: FIRST < LAST are updates, by default the first and the last of the run. A step is a ramp of one update."""


class Scheduled(float):
    """A setting that depends on the update; as a number it is the last value, with which models are evaluated."""

    ramp: Ramp
    text: str

    def __new__(cls, text: str, key: str = "") -> "Scheduled":
        """Parse the value of the setting ``key``; raises ConfigError, with the right form, unless it is a schedule."""
        name, _, arguments = "".join(text.split()).removesuffix(")").partition("(")
        if name not in FORMS:
            near, forms = nearest(name, FORMS), "; ".join(form for _, form in FORMS.values())
            raise ConfigError(
                key, f"{text!r} is no schedule", f"did you mean {near}(...)? " * bool(near) + f"use {forms}"
            )
        kind, form = FORMS[name]
        try:
            start, end, *updates = (float(each) for each in arguments.split(","))
            first, last = (updates[0] - 1, updates[0]) if name == "step" else updates or (1.0, None)
            is_valid = all(map(math.isfinite, (start, end))) and len(updates) == (1 if name == "step" else len(updates))
            is_valid &= all(map(float.is_integer, updates)) and (last is None or 1 <= first < last)
        except (ValueError, IndexError):
            is_valid = False
        if not is_valid or not text.rstrip().endswith(")") or not re.fullmatch(r"[-+.,eE\d]*", arguments):
            raise ConfigError(
                key, f"{text!r} is not {form}", "updates are whole numbers from 1, the first below the last"
            )
        made = super().__new__(cls, end)
        made.ramp = kind(start, end, first, last)
        made.text = f"{name}({','.join(repr(each).removesuffix('.0') for each in (start, end, *updates))})"
        return made

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
