"""Checks of settings: each raises ConfigError naming the key and the remedy."""

import re

from transformer_jax.config.errors import ConfigError, PluginNeeded
from transformer_jax.config.plugins import is_registered, registered

# Counts are 32-bit integers on the device; beyond the others no memory suffices.
LARGEST = 2**31 - 1
MOST = {"beam_width": 1000, "max_extra_tokens": 100_000, "tokens_per_update": 2**30, "prefetch_batches": 10_000}


def require(condition: bool, key: str, problem: str) -> None:
    """Raises ConfigError naming ``key`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(f"{key}: {problem}")


def require_choice(key: str, value: str, choices: tuple[str, ...], kind: str = "") -> None:
    """Raises ConfigError unless ``value`` is one of ``choices``, or a plugin has registered it as one of this ``kind``."""
    if value in choices or (kind and is_registered(kind, value)):
        return
    problem = f"{key}: {value!r} is not one of {', '.join((*choices, *(registered(kind) if kind else ())))}"
    if kind:
        raise PluginNeeded(f"{problem}; a plugin may add it: --plugin=FILE.py")
    raise ConfigError(problem)


def require_positive(block: str, settings: object, *names: str) -> None:
    """Raises ConfigError unless every named field of ``settings`` is above zero, and no more than could ever be meant."""
    for name in names:
        value = getattr(settings, name)
        require(value > 0, f"{block}.{name}", f"{value} must be above 0")
        require(
            value <= MOST.get(name, LARGEST), f"{block}.{name}", f"{value} must be at most {MOST.get(name, LARGEST)}"
        )


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
