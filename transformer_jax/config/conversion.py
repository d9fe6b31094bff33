"""Settings from dictionaries, JSON and text of the command line, and back.

Conversion is strict: only an int is converted, to float. A bool is not a number, and an unknown key
is an error.
"""

import copy
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args

from transformer_jax.config.checks import check_choice, declared
from transformer_jax.config.experiment import PARTS, ExperimentConfig
from transformer_jax.config.migration import EVALUATION, SCHEMA_VERSION, key_error, migrated
from transformer_jax.config.parts import Parts, settings_of_part
from transformer_jax.config.recipes import recipe_with_kind
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, TASKS, any_kind_of, kinds_of
from transformer_jax.config.update_schedules import Scheduled
from transformer_jax.errors import ConfigError, nearest
from transformer_jax.registry.plugins import names_with_settings

if TYPE_CHECKING:
    from ml_collections import ConfigDict

Block = type | UnionType
"""A settings dataclass, or a union of several, with the fields of all."""
EXPECTED = {str: "text (str)", int: "a whole number (int)", float: "a number (float)", bool: "True or False (bool)"}
BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)


def from_dict(values: Mapping[str, Any]) -> ExperimentConfig:
    """Return the settings in ``values``, nested like ``ExperimentConfig``; others are defaults.

    Raises ConfigError for an unknown key, a value of the wrong type, or incompatible settings.
    """
    task = _typed(str, values.get("task", DEFAULT_TASK), "task")
    check_choice("task", task, (), "task")
    config: ExperimentConfig = _block_from(
        ExperimentConfig, {name: {} for name in BLOCKS_OF_TASKS} | dict(values), "", task
    )
    return config


def to_dict(config: ExperimentConfig) -> dict[str, Any]:
    """Return all settings as nested dictionaries, without empty ``parts``."""
    values = asdict(config, dict_factory=_with_text)
    del values[PARTS]
    parts = {name: asdict(settings, dict_factory=_with_text) for name, settings in config.parts.items()}
    return values | ({PARTS: parts} if parts else {})


def _with_text(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Scheduled) else value for name, value in items}


def flatten(config: ExperimentConfig) -> dict[str, Any]:
    """Return all settings by dotted key: ``{"seed": 0, "data.source": "grammar", ...}``."""
    return dict(leaves(to_dict(config)))


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``{"model": {"d_ff": 8}}`` as ``("model.d_ff", 8)``."""
    for name, value in values.items():
        key = f"{path}.{name}" if path else name
        yield from leaves(value, key) if isinstance(value, Mapping) else [(key, value)]


def difference(left: ExperimentConfig, right: ExperimentConfig) -> list[tuple[str, Any, Any]]:
    """Return settings that differ, ``[("model.d_ff", 2048, 1024), ...]``.

    None stands for a setting that a side lacks.
    """
    values, others = flatten(left), flatten(right)
    keys = sorted(values.keys() | others.keys())
    return [(key, values.get(key), others.get(key)) for key in keys if values.get(key) != others.get(key)]


def listed(changes: Iterable[tuple[str, Any, Any]]) -> str:
    """Return a line for each ``difference`` between a run and this command."""
    return "".join(f"\n  {key}: the run has {before!r}, this command {after!r}" for key, before, after in changes)


def to_json(config: ExperimentConfig) -> dict[str, Any]:
    """Return the settings as a JSON object: ``{"schema_version": 3, "config": {...}}``."""
    return {"schema_version": SCHEMA_VERSION, "config": to_dict(config)}


def from_json(content: Any) -> ExperimentConfig:
    """Return the inverse of ``to_json``, also of earlier schema versions.

    Removed settings are left out. Raises ConfigError for another object, a newer schema version, or
    wrong settings.
    """
    if not isinstance(content, dict) or set(content) != {"schema_version", "config"}:
        raise ConfigError("not the settings of a run", "expected an object with schema_version and config")
    version, values = content["schema_version"], content["config"]
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        problem = f"{version!r} is not one of 1 to {SCHEMA_VERSION}"
        raise ConfigError("schema_version", problem, "update transformer_jax")
    if not isinstance(values, dict):
        raise ConfigError("config", f"expected a block of settings, found {values!r}")
    values = migrated(values, version)
    return from_dict(EVALUATION | values if values.get("task", DEFAULT_TASK) == DEFAULT_TASK else values)


def _block_from(block: Block, values: Any, path: str, task: str) -> Any:
    """Return a settings dataclass from a dictionary, recursively."""
    if not isinstance(values, Mapping):
        names = fields_of(any_kind_of(path) if path in BLOCKS_OF_TASKS else block)
        raise ConfigError(path, f"expected a block of settings with {', '.join(names)}, found {values!r}")
    kinds = kinds_of(task, path) if path in BLOCKS_OF_TASKS else {"": block}
    kind = values.get("kind", next(iter(kinds))) if len(kinds) > 1 else next(iter(kinds))
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"{path}.kind", f"{kind!r} is not one of {', '.join(kinds)}")
    block_type: Any = kinds[kind]
    # Not fields_of, which loads the settings of all tasks.
    types = {name: declaration.type for name, declaration in declared(block_type).items()}
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{path}.{name}" if path else str(name)
        if key == PARTS:
            if not isinstance(value, Mapping):
                raise ConfigError(PARTS, f"expected settings by the name of their part, found {value!r}")
            parts = {part: _block_from(settings_of_part(part), value[part], f"{PARTS}.{part}", task) for part in value}
            arguments[name] = Parts(parts)
        elif name not in types:
            if key not in dict(leaf_keys()):
                raise unknown_key(key)
            if owners := [owner for owner, settings in kinds.items() if name in declared(settings)]:
                problem = f"is set, but only {path}.kind={' or '.join(owners)} has it; {kind} has {', '.join(types)}"
                recipe = recipe_with_kind(kind) if kind != next(iter(kinds)) else ""
                raise ConfigError(key, problem, f"--config={recipe} is a recipe for {kind}" if recipe else "")
            owner = f"{path}.kind={kind}, which" if len(kinds) > 1 else f"task={task}, whose {path}"
            raise ConfigError(key, f"not a setting of {owner} has {', '.join(types)}")
        elif key in BLOCKS_OF_TASKS or is_block(types[name]):
            arguments[name] = _block_from(types[name], value, key, task)
        else:
            arguments[name] = _typed(types[name], value, key)
    return block_type(**arguments)


def _typed(kind: type, value: Any, key: str) -> Any:
    """Return ``value`` if it has the type ``kind``. An int becomes a float if necessary."""
    if kind is float and type(value) is int:
        value = float(value)
    if kind in (float, int) and isinstance(value, str | Scheduled) and "(" in str(value):
        return Scheduled(str(value), key)
    if type(value) is not kind:
        raise ConfigError(key, f"expected {EXPECTED[kind]}, found {value!r} ({type(value).__name__})")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(key, f"{value} is not a finite number")
    return value


def fields_of(block: Block) -> dict[str, Any]:
    """Return fields with their types, in order. For ``ExperimentConfig`` all tasks are loaded."""
    kinds = {name: fact.type for kind in get_args(block) or (block,) for name, fact in declared(kind).items()}
    return kinds | ({name: any_kind_of(name) for name in BLOCKS_OF_TASKS} if block is ExperimentConfig else {})


def is_block(kind: Any) -> bool:
    """Return whether a field is a block of settings, not a value."""
    return is_dataclass(kind) or bool(get_args(kind))


def leaf_keys(block: Block = ExperimentConfig, prefix: str = "") -> Iterator[tuple[str, type]]:
    """Yield dotted keys below ``block``, without parts, and types: ``("model.num_heads", int)``."""
    for name, kind in fields_of(block).items():
        if is_block(kind):
            yield from leaf_keys(kind, f"{prefix}{name}.")
        elif kind is not Parts:
            yield prefix + name, kind


def keys_of_parts() -> Iterator[str]:
    """Yield the dotted keys of all settings of parts. Imports the whole kit."""
    for name in names_with_settings():
        yield from (key for key, _ in leaf_keys(settings_of_part(name), f"{PARTS}.{name}."))


def block_at(path: str) -> Block | None:
    """Return the block at ``"model"`` or ``"parts.rmsnorm"``, or None. Raises ConfigError."""
    first, _, part = path.partition(".")
    if first == PARTS and part:
        return settings_of_part(part)
    if path in ("", *BLOCKS_OF_TASKS):
        return any_kind_of(path) if path else ExperimentConfig
    declaration = declared(ExperimentConfig).get(path)
    return declaration.type if declaration and is_block(declaration.type) else None


def type_of(key: str, task: str = "") -> type:
    """Return the type of the setting at a dotted key, of ``task`` or else of any task.

    Raises ConfigError for an unknown key, with the nearest one, and for a block.
    """
    if not key:
        raise unknown_key("--config.")
    path, _, name = key.rpartition(".")
    if task in TASKS and path in BLOCKS_OF_TASKS:
        for of_task in kinds_of(task, path).values():
            if name in declared(of_task):
                return declared(of_task)[name].type
    if PARTS in (key, path):
        block_at(key)
        raise ConfigError(key, "is a block", f"set one of its settings, {PARTS}.NAME.FIELD")
    if path == "" and (block := block_at(key)):
        names = list(fields_of(block))
        raise ConfigError(key, "is a block", f"set keys of it ({key}={names[0]}=VALUE,...): {', '.join(names)}")
    owner = block_at(path)
    if owner is None or name not in (kinds := fields_of(owner)):
        raise unknown_key(key)
    return kinds[name]


@cache
def other_toolkits(table: str) -> dict[str, list[str]]:
    """Return our names of ``settings``, ``flags``, ``commands`` or ``advice`` by foreign names."""
    text = Path(__file__).with_name("other_toolkits.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)[table].items()
    return {name: ours.split() for ours, names in rows for name in names.split()}


def settings_called(key: str) -> list[str]:
    """Return the settings with this key or name, first the ones that other toolkits call so."""
    keys, (block, _, name) = [leaf for leaf, _ in leaf_keys()], key.rpartition(".")
    if key in keys:
        return [key]
    foreign = other_toolkits("settings")
    if row := foreign.get(key) or foreign.get(name):
        return [ours for ours in row if block and ours.startswith(f"{block}.")] or row
    return [ours for ours in keys if ours.endswith(f".{name}")]


def similar_settings(key: str) -> list[str]:
    """Return at most three keys that an unknown key, or a name without a block, may mean."""
    keys, blocks, called = [leaf for leaf, _ in leaf_keys()], fields_of(ExperimentConfig), settings_called(key)
    block, _, name = key.rpartition(".")
    if called and called[0].endswith(f".{name}") and (near := nearest(key, called, cutoff=0.8)):
        return [near]
    if called and len(called) <= 3:
        return called
    if is_block(blocks.get(block)):
        names = [ours.rpartition(".")[2] for ours in keys if ours.startswith(f"{block}.")]
        near = nearest(name, names)
        return [f"{block}.{near}"] if near else [*filter(None, [nearest(key, keys, cutoff=0.8)])]
    return [*filter(None, [nearest(key, (*keys, *blocks))])]


def either(keys: Iterable[str]) -> str:
    """Return ``a.x or b.y``, but for keys of one block ``a.x and a.y``."""
    keys = list(keys)
    return (" or " if len({key.rpartition(".")[0] for key in keys}) > 1 else " and ").join(keys)


def unknown_key(key: str) -> ConfigError:
    """Return the error for an unknown key, with the nearest keys or all keys of the block."""
    if error := key_error(key):
        return error
    path, _, name = key.rpartition(".")
    if path.startswith(f"{PARTS}."):
        names = list(fields_of(settings_of_part(path.removeprefix(f"{PARTS}."))))
        near = nearest(name, names)
        hint = f"did you mean {path}.{near}?" if near else f"{path} has {', '.join(names)}"
        return ConfigError(key, "unknown key", hint)
    if similar := similar_settings(key):
        return ConfigError(key, "unknown key", f"did you mean {either(similar)}?")
    blocks = fields_of(ExperimentConfig)
    owner = path if is_block(blocks.get(path)) else ""
    siblings = fields_of(blocks[owner]) if owner else blocks
    return ConfigError(key, "unknown key", f"{owner or 'the config'} has {', '.join(siblings)}")


def apply_overrides(
    values: "Mapping[str, Any] | ConfigDict", overrides: Iterable[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Return a plain copy of ``values`` with dotted keys set from text, in order.

    References between settings of a recipe (``config.get_ref``) follow the overrides. Example:
    ``apply_overrides({}, [("model.d_ff", "512")])`` is ``{"model": {"d_ff": 512}}``. Raises
    ConfigError for an unknown key, text that is not a value of the setting, or a required setting
    without value.
    """
    config: Any = copy.deepcopy(values)
    overrides, is_recipe = list(overrides), not isinstance(config, dict)
    task = dict(overrides).get("task", config.get("task", DEFAULT_TASK))
    # Types are checked by the settings dataclasses, not by the values in the recipe.
    with config.unlocked() if is_recipe else nullcontext(), config.ignore_type() if is_recipe else nullcontext():
        for key, text in overrides:
            value = read_value(key, text, task)
            *path, name = key.split(".")
            block = config
            for step in path:
                if step not in block:
                    block[step] = {}
                block = block[step]
                if not hasattr(block, "items"):
                    raise ConfigError(step, f"the recipe sets it to {block!r}, but it is a block of settings")
            block[name] = value
    return _plain(config, "") if is_recipe else config


def _plain(config: "ConfigDict", path: str) -> dict[str, Any]:
    """Return the settings of a recipe as plain nested dictionaries, with references resolved."""
    from ml_collections.config_dict import RequiredValueError

    result = {}
    for name in config:
        key = f"{path}.{name}" if path else str(name)
        try:
            value = config[name]
        except RequiredValueError:
            raise ConfigError(key, "the recipe requires a value", f"give --config.{key}=VALUE") from None
        result[name] = _plain(value, key) if hasattr(value, "items") else value
    return result


def read_value(key: str, text: str, task: str = "") -> str | int | float | bool:
    """Return the value of ``text`` for the setting ``key``. Raises ConfigError."""
    kind = type_of(key, task)
    if kind in (float, int) and "(" in text:
        return str(Scheduled(text, key))
    try:
        return value_of(kind, text)
    except ValueError:
        raise ConfigError(key, f"expected {EXPECTED[kind]}, found {text!r}") from None


def value_of(kind: type, text: str) -> Any:
    """Return the value of type ``kind`` in ``text``.

    Raises ValueError for other text, such as 1_000.
    """
    if kind is bool and text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    if kind is bool or (kind is not str and ("_" in text or not text.isascii())):
        raise ValueError(text)
    return kind(text)


def spelled_out(key: str, text: str) -> list[tuple[str, str]]:
    """Return ``("mesh", "data=-1,fsdp=4")`` as ``mesh.data`` and ``mesh.fsdp``, a value as is."""
    if not key or "=" not in text or block_at(key) is None:
        return [(key, text)]
    # Not at the commas of a schedule.
    parts = (part.strip().partition("=") for part in re.split(r",(?![^()]*\))", text))
    return [(f"{key}.{name}", value) for name, _, value in parts]
