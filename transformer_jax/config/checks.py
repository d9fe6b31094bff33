"""Declaration and checks of settings. Errors name the key and the remedy."""

import itertools
import operator
import re
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, get_args, get_origin, get_type_hints

from transformer_jax.config.update_schedules import Scheduled
from transformer_jax.errors import ConfigError, PluginNeeded, nearest
from transformer_jax.registry.kinds import KINDS
from transformer_jax.registry.plugins import EXAMPLES, OWN_NAMES, is_registered, names_of, setting_of

LARGEST = 2**31 - 1
"""Default upper bound of numbers, which are 32-bit integers on the device."""
LARGEST_SEED = 2**32 - 1
BOUNDS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}


class Facts(TypedDict, total=False):
    """Properties of a setting besides type, default and meaning. By default a number is above 0."""

    above: float
    at_least: float
    below: float
    at_most: float
    unless: tuple[float, str]
    """An allowed number outside the bounds, and its effect: ``(-1, "for all devices")``."""
    choices: tuple[str, ...]
    """Values of a ``str`` to which plugins add or whose default is empty, not of a Literal."""
    plugin: str
    """Kind of plugin (a key of ``registry.kinds.KINDS``) that adds choices."""
    several: bool
    """Whether the value is a list of different choices. It is saved sorted, without spaces."""
    ordered: bool
    """Whether the order of the list has a meaning, so that it is saved as it is."""
    separator: str
    """The separator of the list, by default a comma. Between spaces a choice may be repeated."""
    pattern: bool
    """Whether the value is a regular expression."""
    program: Literal["traced", "optional"]
    """``traced``: an argument of the compiled training step. ``optional``: unless it is 0."""
    schedulable: bool
    """Whether a traced float may be a schedule of the update, by default True."""
    changeable: bool
    """Whether a resumed run may have another value."""


def setting(default: Any, meaning: str, **facts: Unpack[Facts]) -> Any:
    """Return a dataclass field with facts for help, docs, validation and sweeps.

    Example: ``dropout: float = setting(0.1, "Dropout rate.", at_least=0, below=1)``. Choices are a
    ``Literal`` type.
    """
    if "plugin" in facts:
        OWN_NAMES[facts["plugin"]].update(facts.get("choices", ()))
    return field(default=default, metadata={"meaning": meaning, **facts})


def rate(default: float, meaning: str) -> Any:
    """Return a probability in training, which 0 removes from the compiled training step."""
    return setting(default, meaning, at_least=0, below=1, program="optional")


def same_setting(default: Any, block: type, name: str) -> Any:
    """Return the setting ``name`` of another dataclass with another default."""
    return field(default=default, metadata=declared(block)[name].facts)


class Declared(NamedTuple):
    """A declared setting; ``type`` is str, int, float, bool or a block of settings."""

    type: Any
    choices: tuple[str, ...]
    default: Any
    facts: Mapping[str, Any]

    @property
    def separator(self) -> str:
        return str(self.facts.get("separator", ","))

    def choices_in(self, value: str) -> list[str]:
        """Return the choices that a value names, one or several."""
        if not self.facts.get("several"):
            return [value]
        return list(filter(None, map(str.strip, value.split(self.separator))))

    @property
    def meaning(self) -> str:
        return str(self.facts.get("meaning", ""))

    @property
    def bounds(self) -> dict[str, int | float]:
        """The bounds of a number: ``{"at_least": 0, "below": 1}``."""
        defaults = {"at_most": LARGEST} | ({} if "at_least" in self.facts else {"above": 0})
        bounds = defaults | {word: self.facts[word] for word in BOUNDS if word in self.facts}
        return {word: bounds[word] for word in BOUNDS if word in bounds}

    @property
    def values(self) -> tuple[str, ...]:
        """The allowed values in words: choices, or bounds such as ``("at least 0", "below 1")``."""
        if self.type not in (int, float):
            plugin = self.facts.get("plugin")
            return (*self.choices, *(names_of(plugin) if plugin else ()))
        words = [f"{word.replace('_', ' ')} {bound}" for word, bound in self.bounds.items() if bound != LARGEST]
        words += [f"or {self.facts['unless'][0]}"] if "unless" in self.facts else []
        return (*words, *(["or a schedule"] if self.may_be_scheduled else []))

    @property
    def may_be_scheduled(self) -> bool:
        """Whether the value may be a schedule of the update."""
        return self.type is float and "program" in self.facts and self.facts.get("schedulable", True)

    def checked(self, key: str, value: Any) -> Any:
        """Return the value in its saved form. Raises ConfigError (``key``) unless it is allowed."""
        if self.type in (int, float):
            special, effect = self.facts.get("unless", (None, ""))
            # A schedule stays between its ends.
            numbers = value.ramp[:2] if isinstance(value, Scheduled) else (value,)
            for number, (word, bound) in itertools.product(numbers, self.bounds.items()):
                if not BOUNDS[word](number, bound) and number != special:
                    is_low = effect and word in ("above", "at_least")
                    other = f", or {special} {effect}" if is_low else ""
                    of = f" of {value}" if isinstance(value, Scheduled) else ""
                    raise ConfigError(key, f"{number}{of} must be {word.replace('_', ' ')} {bound}{other}")
        elif self.facts.get("pattern"):
            try:
                re.compile(value)
            except re.error as error:
                raise ConfigError(key, f"{value!r} is not a regular expression: {error}") from None
        elif self.type is str and value != self.default:
            names, plugin = self.choices_in(value), self.facts.get("plugin", "")
            for name in names if self.choices or plugin else ():
                check_choice(key, name, self.choices, plugin)
            if self.facts.get("several"):
                twice = next((name for name in names if names.count(name) > 1), "") if self.separator == "," else ""
                if twice:
                    raise ConfigError(key, f"{value!r} names {twice} twice", "name it once")
                return self.separator.join(names if self.facts.get("ordered") else sorted(names))
        return value


def declared(block: Any) -> Mapping[str, Declared]:
    """Return the settings of a dataclass by name, in order of declaration."""
    return _declared(block)


# Apart, since for mypy a dataclass is not hashable.
@cache
def _declared(block: Any) -> Mapping[str, Declared]:
    hints, settings = get_type_hints(block), {}
    for member in fields(block):
        hint = hints[member.name]
        literals = get_args(hint) if get_origin(hint) is Literal else ()
        choices = literals or member.metadata.get("choices", ())
        settings[member.name] = Declared(str if literals else hint, choices, member.default, member.metadata)
    return settings


def check_settings(path: str, block: Any) -> None:
    """Raise ConfigError unless all settings of ``block`` are allowed. Sorts lists."""
    settings = declared(type(block))
    for name, declaration in settings.items():
        value = getattr(block, name)
        if isinstance(value, Scheduled) and not declaration.may_be_scheduled:
            others = [other for other in settings if settings[other].may_be_scheduled]
            remedy = f"of {path}, {', '.join(others)} may be one" if others else "give a number"
            raise ConfigError(
                f"{path}.{name}", f"is fixed during a run, and {value} is a schedule of the update", remedy
            )
        if (saved := declaration.checked(f"{path}.{name}" if path else name, value)) != value:
            object.__setattr__(block, name, saved)


def check_choice(key: str, value: str, choices: tuple[str, ...], plugin: str = "") -> None:
    """Raise ConfigError unless ``value`` is in ``choices`` or registered by this kind of plugin."""
    if value in choices or (plugin and is_registered(plugin, value)):
        return
    names = (*choices, *(names_of(plugin) if plugin else ()))
    meant = nearest(value, names) or _named_elsewhere(key, value)
    problem = f"{value!r} is not one of {', '.join(names)}{f' (did you mean {meant}?)' if meant else ''}"
    if plugin:
        file = EXAMPLES.get((plugin, value), "FILE.py")
        raise PluginNeeded(key, problem, f"a plugin may add it: --plugin={file}")
    raise ConfigError(key, problem)


def _named_elsewhere(key: str, value: str) -> str | None:
    """Return another setting with a part of a similar name, as ``model.positions=rope``."""
    block = key.rpartition(".")[0]
    for kind in KINDS:
        other = setting_of(kind)
        name = nearest(value, (*OWN_NAMES[kind], *names_of(kind))) if other != key else None
        if name and other.rpartition(".")[0] == block:
            return f"{other}={name}"
    return None
