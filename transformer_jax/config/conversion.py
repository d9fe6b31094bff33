"""Strict conversion between plain nested dictionaries and the frozen settings, both ways.

Nothing is cast silently: a whole number stands for a float, a bool is not a number, and an unknown key is an error.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from transformer_jax.config.checks import require_choice
from transformer_jax.config.errors import ConfigError
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.keys import Block, fields_of, is_block, join_key, leaf_keys, unknown_key
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, OWN_TASKS, kinds_of

EXPECTED = {str: "text (str)", int: "a whole number (int)", float: "a number (float)", bool: "True or False (bool)"}


def from_dict(values: Mapping[str, Any]) -> ExperimentConfig:
    """The settings stated in ``values``, nested as ``ExperimentConfig`` is; what is not stated keeps its default.

    Raises:
        ConfigError: an unknown key, a value of the wrong type, or settings that exclude each other.
    """
    task = values.get("task", DEFAULT_TASK)
    require_choice("task", task, tuple(OWN_TASKS), "task")
    return _block_from(ExperimentConfig, {name: {} for name in BLOCKS_OF_TASKS} | dict(values), "", task)


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
    """The settings in which two runs differ: ``[("model.d_ff", 2048, 1024), ...]``, sorted by key; None where there is none."""
    values, others = flatten(left), flatten(right)
    keys = sorted(values.keys() | others.keys())
    return [(key, values.get(key), others.get(key)) for key in keys if values.get(key) != others.get(key)]


def _block_from(block: Block, values: Any, path: str, task: str) -> Any:
    """One settings dataclass from the dictionary of its fields, recursively."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: expected a block of settings with {', '.join(fields_of(block))}, found {values!r}")
    chosen = _chosen(values, path, task) if path in BLOCKS_OF_TASKS else block
    kinds = fields_of(chosen)
    arguments = {}
    for name, value in values.items():
        key = join_key(path, str(name))
        if name not in kinds:
            raise _not_of_this_kind(chosen, key, task) if key in dict(leaf_keys()) else unknown_key(key)
        kind = kinds[name]
        arguments[name] = _block_from(kind, value, key, task) if is_block(kind) else _checked(kind, value, key)
    return chosen(**arguments)  # type: ignore[operator]


def _chosen(values: Mapping[str, Any], path: str, task: str) -> type:
    """The settings dataclass of a block of this task: of several the one that its ``kind`` names, by default the first."""
    kinds = kinds_of(task, path)
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    name = values.get("kind", next(iter(kinds)))
    if name not in kinds:
        raise ConfigError(f"{path}.kind: {name!r} is not one of {', '.join(kinds)}")
    return kinds[name]


def _not_of_this_kind(block: Any, key: str, task: str) -> ConfigError:
    """The error for a setting that only a block of another kind, or of another task, has."""
    path, _, _ = key.rpartition(".")
    kinds = kinds_of(task, path)
    kind = next(name for name, each in kinds.items() if each is block)
    owner = f"{path}.kind={kind}, which" if len(kinds) > 1 else f"task={task}, whose {path}"
    return ConfigError(f"{key}: not a setting of {owner} has {', '.join(fields_of(block))}")


def _checked(kind: type, value: Any, key: str) -> Any:
    """``value`` if it is of the type ``kind``; the only conversion is from int to float, which loses nothing."""
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"{key}: expected {EXPECTED[kind]}, found {value!r} ({type(value).__name__})")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key}: {value} is not a finite number")
    return value
