"""The strict crossing between plain nested dictionaries and the frozen settings, both ways.

Nothing is cast silently: a whole number stands for a float, a bool is not a number, and an unknown key is an error.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.keys import fields_of, is_block, join_key, unknown_key

EXPECTED = {str: "text (str)", int: "a whole number (int)", float: "a number (float)", bool: "True or False (bool)"}


def from_dict(values: Mapping[str, Any]) -> ExperimentConfig:
    """The settings stated in ``values``, nested as ``ExperimentConfig`` is; what is not stated keeps its default.

    Raises:
        ConfigError: an unknown key, a value of the wrong type, or settings that exclude each other.
    """
    return _block_from(ExperimentConfig, values, "")


def to_dict(config: ExperimentConfig) -> dict[str, Any]:
    """The inverse of ``from_dict``: every setting, as nested dictionaries of plain values."""
    return asdict(config)


def flatten(config: ExperimentConfig) -> dict[str, Any]:
    """Every setting under its dotted key: ``{"seed": 0, "data.source": "grammar", ...}``."""
    flat: dict[str, Any] = {}
    for name, value in to_dict(config).items():
        flat |= {f"{name}.{key}": leaf for key, leaf in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def difference(left: ExperimentConfig, right: ExperimentConfig) -> list[tuple[str, Any, Any]]:
    """The settings in which two runs differ: ``[("model.d_ff", 2048, 1024), ...]``, sorted by key."""
    values, others = flatten(left), flatten(right)
    return [(key, values[key], others[key]) for key in sorted(values) if values[key] != others[key]]


def _block_from(block: type, values: Any, path: str) -> Any:
    """One settings dataclass from the dictionary of its fields, recursively."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: expected a block of settings with {', '.join(fields_of(block))}, found {values!r}")
    kinds = fields_of(block)
    arguments = {}
    for name, value in values.items():
        key = join_key(path, str(name))
        if name not in kinds:
            raise unknown_key(key)
        kind = kinds[name]
        arguments[name] = _block_from(kind, value, key) if is_block(kind) else _checked(kind, value, key)
    return block(**arguments)


def _checked(kind: type, value: Any, key: str) -> Any:
    """``value`` if it is of the type ``kind``; the only conversion is from int to float, which loses nothing."""
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"{key}: expected {EXPECTED[kind]}, found {value!r} ({type(value).__name__})")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key}: {value} is not a finite number")
    return value
