"""Checks of settings: each raises ConfigError naming the key and the remedy."""

import re

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.plugins import is_registered, registered


def require(condition: bool, key: str, problem: str) -> None:
    """Raises ConfigError naming ``key`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(f"{key}: {problem}")


def require_choice(key: str, value: str, choices: tuple[str, ...], kind: str = "") -> None:
    """Raises ConfigError unless ``value`` is one of ``choices``, or a plugin has registered it as one of this ``kind``."""
    if value in choices or (kind and is_registered(kind, value)):
        return
    names = (*choices, *registered(kind)) if kind else choices
    plugin = "; a plugin may add it: --plugin=FILE.py" if kind else ""
    raise ConfigError(f"{key}: {value!r} is not one of {', '.join(names)}{plugin}")


def require_positive(block: str, settings: object, *names: str) -> None:
    """Raises ConfigError unless every named field of ``settings`` is above zero."""
    for name in names:
        value = getattr(settings, name)
        require(value > 0, f"{block}.{name}", f"{value} must be above 0")


def require_fraction(block: str, settings: object, *names: str) -> None:
    """Raises ConfigError unless every named field of ``settings`` lies in [0, 1)."""
    for name in names:
        value = getattr(settings, name)
        require(0 <= value < 1, f"{block}.{name}", f"{value} must be at least 0 and below 1")


def require_pattern(key: str, text: str) -> None:
    """Raises ConfigError unless ``text`` is a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"{key}: {text!r} is not a regular expression: {error}") from None
