"""Strict conversion of settings to and from nested dictionaries, dotted keys, command-line text and JSON.

Only an int is converted, to float; a bool is not a number, and an unknown key is an error.
"""

import copy
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from types import UnionType
from typing import Any, get_args

from ml_collections import ConfigDict
from ml_collections.config_dict import RequiredValueError

from transformer_jax.config.checks import declared, require_choice
from transformer_jax.config.errors import ConfigError, nearest
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.languages import ISO_639_1, base_language
from transformer_jax.config.migration import EVALUATION, SCHEMA_VERSION, key_error, migrated
from transformer_jax.config.parts import Parts, settings_of_part
from transformer_jax.config.plugins import names_with_settings
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, any_kind_of, kinds_of

EXPECTED = {str: "text (str)", int: "a whole number (int)", float: "a number (float)", bool: "True or False (bool)"}
BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)

PARTS = "parts"
# a.src,a.tgt and a.en.gz,a.de.gz.
_SUFFIXES = re.compile(r"([^,]+)\.[^./, ]+((?:\.(?:gz|xz|bz2|zst|txt))?),\1\.[^./, ]+\2")

Block = type | UnionType
"""A settings dataclass, or a union of several, with the fields of all."""


def from_dict(values: Mapping[str, Any]) -> ExperimentConfig:
    """The settings in ``values``, nested like ``ExperimentConfig``; others keep their defaults.

    Raises ConfigError for an unknown key, a value of the wrong type, or incompatible settings.
    """
    task = values.get("task", DEFAULT_TASK)
    require_choice("task", task, (), "task")
    return _block_from(ExperimentConfig, {name: {} for name in BLOCKS_OF_TASKS} | dict(values), "", task)


def to_dict(config: ExperimentConfig) -> dict[str, Any]:
    """The inverse of ``from_dict``: all settings as nested dictionaries; without ``parts`` if there are none."""
    values = asdict(config)
    del values[PARTS]
    parts = {name: asdict(settings) for name, settings in config.parts.items()}
    return values | ({PARTS: parts} if parts else {})


def flatten(config: ExperimentConfig) -> dict[str, Any]:
    """All settings by dotted key: ``{"seed": 0, "data.source": "grammar", ...}``."""
    return dict(leaves(to_dict(config)))


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """``{"model": {"d_ff": 8}}`` as ``("model.d_ff", 8)``."""
    for name, value in values.items():
        key = join_key(path, name)
        yield from leaves(value, key) if isinstance(value, Mapping) else [(key, value)]


def difference(left: ExperimentConfig, right: ExperimentConfig) -> list[tuple[str, Any, Any]]:
    """Settings that differ, sorted by key: ``[("model.d_ff", 2048, 1024), ...]``; None where one does not have the setting."""
    values, others = flatten(left), flatten(right)
    keys = sorted(values.keys() | others.keys())
    return [(key, values.get(key), others.get(key)) for key in keys if values.get(key) != others.get(key)]


def listed(changes: Iterable[tuple[str, Any, Any]]) -> str:
    """A line for each ``difference`` between a run and this command."""
    return "".join(f"\n  {key}: the run has {before!r}, this command {after!r}" for key, before, after in changes)


def to_json(config: ExperimentConfig) -> dict[str, Any]:
    """The settings as a JSON object: ``{"schema_version": 3, "config": {...}}``."""
    return {"schema_version": SCHEMA_VERSION, "config": to_dict(config)}


def from_json(content: Any) -> ExperimentConfig:
    """The inverse of ``to_json``; migrates earlier schema versions, and leaves out removed settings.

    Raises ConfigError for another object, a newer schema version, or wrong settings.
    """
    if not isinstance(content, dict) or set(content) != {"schema_version", "config"}:
        raise ConfigError("not the settings of a run: expected an object with schema_version and config")
    version = content["schema_version"]
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise ConfigError(f"schema_version: {version!r} is not one of 1 to {SCHEMA_VERSION}; update transformer_jax")
    values = content["config"]
    if not isinstance(values, dict):
        raise ConfigError(f"config: expected a block of settings, found {values!r}")
    values = migrated(values, version)
    return from_dict(EVALUATION | values if values.get("task", DEFAULT_TASK) == DEFAULT_TASK else values)


def _block_from(block: Block, values: Any, path: str, task: str) -> Any:
    """A settings dataclass from a dictionary, recursively."""
    if not isinstance(values, Mapping):
        names = fields_of(any_kind_of(path) if path in BLOCKS_OF_TASKS else block)
        raise ConfigError(f"{path}: expected a block of settings with {', '.join(names)}, found {values!r}")
    chosen = _chosen(values, path, task) if path in BLOCKS_OF_TASKS else block
    # Not fields_of, which loads the settings of all tasks.
    kinds = {name: each.type for name, each in declared(chosen).items()}
    arguments = {}
    for name, value in values.items():
        key = join_key(path, str(name))
        if key == PARTS:
            arguments[name] = _parts_from(value, task)
            continue
        if name not in kinds:
            raise _not_of_this_kind(chosen, key, task) if key in dict(leaf_keys()) else unknown_key(key)
        kind = kinds[name]
        has_block = is_block(kind) or key in BLOCKS_OF_TASKS
        arguments[name] = _block_from(kind, value, key, task) if has_block else _checked(kind, value, key)
    return chosen(**arguments)  # type: ignore[operator]


def _parts_from(values: Any, task: str) -> Parts:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{PARTS}: expected settings by the name of their part, found {values!r}")
    keys = {str(name): f"{PARTS}.{name}" for name in values}
    return Parts({name: _block_from(settings_of_part(name), values[name], key, task) for name, key in keys.items()})


def _chosen(values: Mapping[str, Any], path: str, task: str) -> type:
    """The settings dataclass of a block of this task, by ``kind`` if there are several; the first is the default."""
    kinds = kinds_of(task, path)
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    name = values.get("kind", next(iter(kinds)))
    if name not in kinds:
        raise ConfigError(f"{path}.kind: {name!r} is not one of {', '.join(kinds)}")
    return kinds[name]


def _not_of_this_kind(block: Any, key: str, task: str) -> ConfigError:
    """The error for a setting of another kind of block, or of another task."""
    path, _, _ = key.rpartition(".")
    kinds = kinds_of(task, path)
    kind = next(name for name, each in kinds.items() if each is block)
    owner = f"{path}.kind={kind}, which" if len(kinds) > 1 else f"task={task}, whose {path}"
    return ConfigError(f"{key}: not a setting of {owner} has {', '.join(fields_of(block))}")


def _checked(kind: type, value: Any, key: str) -> Any:
    """``value``, if it has the type ``kind``; an int becomes a float if necessary."""
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"{key}: expected {EXPECTED[kind]}, found {value!r} ({type(value).__name__})")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key}: {value} is not a finite number")
    return value


def fields_of(block: Block) -> dict[str, Any]:
    """Fields with their types, in order of declaration."""
    fields: dict[str, Any] = {}
    for kind in get_args(block) or (block,):
        fields |= {name: each.type for name, each in declared(kind).items()}
    if block is ExperimentConfig:
        fields |= {name: any_kind_of(name) for name in BLOCKS_OF_TASKS}
    return fields


def is_block(kind: Any) -> bool:
    """Whether a field is a block of settings, not a value."""
    return is_dataclass(kind) or bool(get_args(kind))


def leaf_keys(block: Block = ExperimentConfig, prefix: str = "") -> Iterator[tuple[str, type]]:
    """All dotted keys below ``block`` with their types, such as ``("model.num_heads", int)``; without parts."""
    for name, kind in fields_of(block).items():
        if is_block(kind):
            yield from leaf_keys(kind, f"{prefix}{name}.")
        elif kind is not Parts:
            yield prefix + name, kind


def keys_of_parts() -> Iterator[str]:
    """The dotted keys of all settings of parts; imports the whole kit."""
    for name in names_with_settings():
        yield from (key for key, _ in leaf_keys(settings_of_part(name), f"{PARTS}.{name}."))


def block_at(path: str) -> Block | None:
    """The block of settings at a dotted path, ``"model"`` or ``"parts.rmsnorm"``; None if there is none.

    Raises ConfigError for a part without settings.
    """
    first, _, part = path.partition(".")
    if first == PARTS and part:
        return settings_of_part(part)
    found = fields_of(ExperimentConfig).get(path)
    return found if is_block(found) else None


def join_key(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def type_of(key: str) -> type:
    """The type of the setting at a dotted key.

    Raises ConfigError for an unknown key, with the nearest one, and for a block.
    """
    path, _, name = key.rpartition(".")
    if key == PARTS or path == PARTS:
        block_at(key)
        raise ConfigError(f"{key}: is a block; set one of its settings, {PARTS}.NAME.FIELD")
    owner = block_at(path) if path else ExperimentConfig
    kind = None if owner is None else fields_of(owner).get(name)
    if kind is not None and is_block(kind):
        names = list(fields_of(kind))
        raise ConfigError(f"{key}: is a block; set keys of it ({key}={names[0]}=VALUE,...): {', '.join(names)}")
    if kind is None:
        raise unknown_key(key)
    return kind


def unknown_key(key: str) -> ConfigError:
    """The error for a key that does not exist, with the nearest keys or all keys of the block."""
    if error := key_error(key):
        return error
    path, _, name = key.rpartition(".")
    if path.startswith(f"{PARTS}."):
        names = list(fields_of(settings_of_part(path.removeprefix(f"{PARTS}."))))
        near = nearest(name, names)
        hint = f"did you mean {path}.{near}?" if near else f"{path} has {', '.join(names)}"
        return ConfigError(f"{key}: unknown key; {hint}")
    keys, blocks = [leaf for leaf, _ in leaf_keys()], fields_of(ExperimentConfig)
    same_name = [leaf for leaf in keys if leaf.rpartition(".")[2] == name]
    if near := nearest(key, same_name, cutoff=0.8):
        candidates = [near]
    elif 0 < len(same_name) <= 3:
        candidates = same_name
    else:
        candidates = [near] if (near := nearest(key, (*keys, *blocks))) else []
    if candidates:
        return ConfigError(f"{key}: unknown key; did you mean {' or '.join(candidates)}?")
    owner = path if is_block(blocks.get(path)) else ""
    siblings = fields_of(blocks[owner]) if owner else blocks
    return ConfigError(f"{key}: unknown key; {owner or 'the config'} has {', '.join(siblings)}")


def apply_overrides(
    values: Mapping[str, Any] | ConfigDict, overrides: Iterable[tuple[str, str]] = ()
) -> dict[str, Any]:
    """A plain copy of ``values`` with dotted keys set from text, in order.

    References between settings of a recipe (``config.get_ref``) follow the overrides.

    Example: ``apply_overrides({}, [("model.d_ff", "512")])`` is ``{"model": {"d_ff": 512}}``.

    Raises ConfigError for an unknown key, text that is not a value of the setting, or a required setting without value.
    """
    config = ConfigDict(copy.deepcopy(values))
    # Types are checked by the settings dataclasses, not by the values in the recipe.
    with config.unlocked(), config.ignore_type():
        for key, text in overrides:
            value = read_value(key, text)
            *path, name = key.split(".")
            block = config
            for step in path:
                if step not in block:
                    block[step] = ConfigDict()
                block = block[step]
                if not isinstance(block, ConfigDict):
                    raise ConfigError(f"{step}: the recipe sets it to {block!r}, but it is a block of settings")
            block[name] = value
    return _plain(config, "")


def _plain(config: ConfigDict, path: str) -> dict[str, Any]:
    """The settings as plain nested dictionaries, with references resolved."""
    result = {}
    for name in config:
        key = join_key(path, str(name))
        try:
            value = config[name]
        except RequiredValueError:
            raise ConfigError(f"{key}: the recipe requires a value; give --config.{key}=VALUE") from None
        result[name] = _plain(value, key) if isinstance(value, ConfigDict) else value
    return result


def spelled_out(key: str, text: str) -> list[tuple[str, str]]:
    """``("mesh", "data=-1,fsdp=4")`` as ``mesh.data`` and ``mesh.fsdp``; only blocks are split."""
    if "=" not in text or block_at(key) is None:
        return [(key, text)]
    parts = (part.strip().partition("=") for part in text.split(","))
    return [(f"{key}.{name}", value) for name, _, value in parts]


def joined_files(overrides: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Joins ``data.train=a.en data.train=a.de``, to which a shell expands ``data.train=a.{en,de}``; of others the last wins."""
    joined: list[tuple[str, str]] = []
    for key, text in overrides:
        before = joined[-1] if joined else ("", "")
        is_pair = (
            key in ("data.train", "data.validation", "data.test")
            and before[0] == key
            and before[1] != text
            and _are_a_pair(before[1], text)
        )
        joined[-1 if is_pair else len(joined) :] = [(key, f"{before[1]},{text}" if is_pair else text)]
    return joined


def _are_a_pair(first: str, second: str) -> bool:
    """Whether two file names differ in one suffix (``a.src``, ``a.tgt``) or in one language (``en/a.txt``, ``de/a.txt``)."""
    parts = [re.split(r"([/._-])", name) for name in (first, second)]
    differ = [pair for pair in zip(*parts, strict=False) if len(set(pair)) > 1]
    is_language = len(differ) == 1 and all(base_language(part) in ISO_639_1 for part in differ[0])
    is_language &= len(parts[0]) == len(parts[1]) and " " not in first
    return is_language or bool(_SUFFIXES.fullmatch(f"{first},{second}"))


def read_value(key: str, text: str) -> str | int | float | bool:
    """The value of ``text`` for the setting ``key``.

    Raises ConfigError for an unknown key, or text that is not a value of the setting.
    """
    kind = type_of(key)
    try:
        return BOOLEANS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ConfigError(f"{key}: expected {EXPECTED[kind]}, found {text!r}") from None
