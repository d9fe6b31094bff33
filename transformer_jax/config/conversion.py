"""Settings as nested dictionaries, dotted keys, text of the command line and JSON; conversion is strict both ways.

Nothing is cast silently: a whole number may be given for a float, a bool is not a number, and an unknown key is an error.
"""

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, get_args

from ml_collections import ConfigDict
from ml_collections.config_dict import RequiredValueError

from transformer_jax.config.checks import declared, require_choice
from transformer_jax.config.errors import ConfigError, nearest
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.parts import Parts, settings_of_part
from transformer_jax.config.plugins import names_with_settings
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, OWN_TASKS, TASKS, any_kind_of, kinds_of

EXPECTED = {str: "text (str)", int: "a whole number (int)", float: "a number (float)", bool: "True or False (bool)"}
# The spellings that absl's boolean flags accept.
TRUE_WORDS = ("true", "t", "yes", "y", "1")
FALSE_WORDS = ("false", "f", "no", "n", "0")
# Settings that name two files.
NAMED_FILES = ("data.train", "data.validation", "data.test")

# Raised when a key is renamed or its meaning changes. A new key needs no new version, when its default is the old behavior.
SCHEMA_VERSION = 3
PARTS = "parts"
RENAMED: dict[int, dict[str, str]] = {
    1: {"model.rematerialise": "model.rematerialize"},
    2: {"data.file": "data.train"},
}
"""By the last schema version that had them: the old keys, and their names in the next version."""
DEPRECATED = {old: new for renamed in RENAMED.values() for old, new in renamed.items()}
"""The old keys that recipes and the command line still accept, with a warning."""
REMOVED: dict[str, object] = {"decoding.shortlist": ""}
"""Settings of earlier versions that are gone, with the value that had no effect."""
# Runs of versions without this block were scored like this, whatever their language.
_AS_BEFORE = {"evaluation": {"bleu_tokenizer": "13a", "selection": "bleu"}}

Block = type | UnionType
"""A settings dataclass, or for a block of several kinds the union of them; it has all their fields."""


def from_dict(values: Mapping[str, Any]) -> ExperimentConfig:
    """The settings stated in ``values``, nested as ``ExperimentConfig`` is; the others keep their defaults.

    Raises:
        ConfigError: an unknown key, a value of the wrong type, or settings that exclude each other.
    """
    task = values.get("task", DEFAULT_TASK)
    require_choice("task", task, tuple(OWN_TASKS), "task")
    return _block_from(ExperimentConfig, {name: {} for name in BLOCKS_OF_TASKS} | dict(values), "", task)


def to_dict(config: ExperimentConfig) -> dict[str, Any]:
    """The inverse of ``from_dict``: every setting, as nested dictionaries of plain values; no ``parts`` if there are none."""
    values = asdict(config)
    parts = {name: asdict(settings) for name, settings in config.parts.items()}
    return {name: value for name, value in values.items() if name != "parts"} | ({"parts": parts} if parts else {})


def flatten(config: ExperimentConfig) -> dict[str, Any]:
    """Every setting under its dotted key: ``{"seed": 0, "data.source": "grammar", ...}``."""
    return dict(leaves(to_dict(config)))


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested dictionaries with their dotted keys."""
    for name, value in values.items():
        key = join_key(path, name)
        yield from leaves(value, key) if isinstance(value, dict) else [(key, value)]


def difference(left: ExperimentConfig, right: ExperimentConfig) -> list[tuple[str, Any, Any]]:
    """The settings in which two runs differ: ``[("model.d_ff", 2048, 1024), ...]``, sorted by key; None for one without it."""
    values, others = flatten(left), flatten(right)
    keys = sorted(values.keys() | others.keys())
    return [(key, values.get(key), others.get(key)) for key in keys if values.get(key) != others.get(key)]


def listed(changes: Iterable[tuple[str, Any, Any]]) -> str:
    """A line for each ``difference`` between the settings of a run and of this command."""
    return "".join(f"\n  {key}: the run has {before!r}, this command {after!r}" for key, before, after in changes)


def to_json(config: ExperimentConfig) -> dict[str, Any]:
    """The settings as a JSON object: ``{"schema_version": 3, "config": {...}}``."""
    return {"schema_version": SCHEMA_VERSION, "config": to_dict(config)}


def from_json(content: Any) -> ExperimentConfig:
    """The inverse of ``to_json``; settings of earlier schema versions are migrated, removed ones are left out.

    Raises:
        ConfigError: not such an object, a newer schema version than this code knows, or wrong settings.
    """
    if not isinstance(content, dict) or set(content) != {"schema_version", "config"}:
        raise ConfigError("not the settings of a run: expected an object with schema_version and config")
    version = content["schema_version"]
    if type(version) is not int or version < 1:
        raise ConfigError(f"schema_version: {version!r} is not a version; expected 1 to {SCHEMA_VERSION}")
    if version > SCHEMA_VERSION:
        raise ConfigError(f"schema_version: {version} is newer than {SCHEMA_VERSION}; update transformer_jax")
    values = content["config"]
    if not isinstance(values, dict):
        raise ConfigError(f"config: expected a block of settings, found {values!r}")
    for renamed in (RENAMED[old_version] for old_version in range(version, SCHEMA_VERSION)):
        for old, new in renamed.items():
            block, _, name = old.partition(".")
            if isinstance(values.get(block), dict) and name in values[block]:
                fields = {new.partition(".")[2] if key == name else key: value for key, value in values[block].items()}
                values = {**values, block: fields}
    values = without_removed(values)
    is_translation = values.get("task", DEFAULT_TASK) == DEFAULT_TASK
    return from_dict(_AS_BEFORE | values if is_translation else values)


def without_removed(values: dict[str, Any]) -> dict[str, Any]:
    """Saved settings, as nested dictionaries, without removed ones; warns if one had an effect."""
    for key, unused in REMOVED.items():
        block, _, name = key.partition(".")
        if isinstance(values.get(block), dict) and name in values[block]:
            if values[block][name] != unused:
                warnings.warn(f"{key}={values[block][name]} is ignored: the setting was removed", stacklevel=3)
            values = {**values, block: {field: value for field, value in values[block].items() if field != name}}
    return values


def _block_from(block: Block, values: Any, path: str, task: str) -> Any:
    """One settings dataclass from the dictionary of its fields, recursively."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: expected a block of settings with {', '.join(fields_of(block))}, found {values!r}")
    chosen = _chosen(values, path, task) if path in BLOCKS_OF_TASKS else block
    kinds = fields_of(chosen)
    arguments = {}
    for name, value in values.items():
        key = join_key(path, str(name))
        if key == PARTS:
            arguments[name] = _parts_from(value, task)
            continue
        if name not in kinds:
            raise _not_of_this_kind(chosen, key, task) if key in dict(leaf_keys()) else unknown_key(key)
        kind = kinds[name]
        arguments[name] = _block_from(kind, value, key, task) if is_block(kind) else _checked(kind, value, key)
    return chosen(**arguments)  # type: ignore[operator]


def _parts_from(values: Any, task: str) -> Parts:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{PARTS}: expected settings by the name of their part, found {values!r}")
    keys = {str(name): f"{PARTS}.{name}" for name in values}
    return Parts({name: _block_from(settings_of_part(name), values[name], key, task) for name, key in keys.items()})


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


def fields_of(block: Block) -> MappingProxyType[str, Any]:
    """The field names with their types, in the order of the declaration."""
    return _fields_of(block, tuple(TASKS))


@cache
def _fields_of(block: Block, tasks: tuple[str, ...]) -> MappingProxyType[str, Any]:
    del tasks  # A plugin that adds one may add fields.
    fields: dict[str, Any] = {}
    for kind in get_args(block) or (block,):
        fields |= {name: each.type for name, each in declared(kind).items()}
    if block is ExperimentConfig:
        fields |= {name: any_kind_of(name) for name in BLOCKS_OF_TASKS}
    return MappingProxyType(fields)


def is_block(kind: Any) -> bool:
    """Whether a field holds a nested block of settings, of one kind or of several, rather than a value."""
    return is_dataclass(kind) or bool(get_args(kind))


def leaf_keys(block: Block = ExperimentConfig, prefix: str = "") -> Iterator[tuple[str, type]]:
    """Every dotted key below ``block`` with its type, for example ``("model.num_heads", int)``; without parts."""
    for name, kind in fields_of(block).items():
        if is_block(kind):
            yield from leaf_keys(kind, f"{prefix}{name}.")
        elif kind is not Parts:
            yield prefix + name, kind


def keys_of_parts() -> Iterator[str]:
    """The dotted keys of the settings of all parts; imports the whole kit."""
    for name in names_with_settings():
        yield from (key for key, _ in leaf_keys(settings_of_part(name), f"{PARTS}.{name}."))


def block_at(path: str) -> Block | None:
    """The block of settings at a dotted path, ``"model"`` or ``"parts.rmsnorm"``; None if there is none.

    Raises ConfigError at a part without settings.
    """
    first, _, part = path.partition(".")
    if first == PARTS and part:
        return settings_of_part(part)
    found = fields_of(ExperimentConfig).get(path)
    return found if is_block(found) else None


def join_key(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def type_of(key: str) -> type:
    """The type of the setting at a dotted key, which may be the old name of a renamed one.

    Raises:
        ConfigError: the key is unknown, with the nearest one, or it is a block.
    """
    key = current_key(key)
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
    """The error for a key that does not exist: names the nearest keys, or else lists the keys of the block."""
    if key in REMOVED:
        return ConfigError(f"{key}: was removed; leave it out")
    path, _, name = key.rpartition(".")
    if path.startswith(f"{PARTS}."):
        return _unknown_field(path, name)
    leaves, blocks = [leaf for leaf, _ in leaf_keys()], fields_of(ExperimentConfig)
    same_name = [leaf for leaf in leaves if leaf.rpartition(".")[2] == name]
    if near := nearest(key, same_name, cutoff=0.8):
        candidates = [near]
    elif 0 < len(same_name) <= 3:
        candidates = same_name
    else:
        candidates = [near] if (near := nearest(key, (*leaves, *blocks))) else []
    if candidates:
        return ConfigError(f"{key}: unknown key; did you mean {' or '.join(candidates)}?")
    owner = path if is_block(blocks.get(path)) else ""
    siblings = fields_of(blocks[owner]) if owner else blocks
    return ConfigError(f"{key}: unknown key; {owner or 'the config'} has {', '.join(siblings)}")


def _unknown_field(path: str, name: str) -> ConfigError:
    names = list(fields_of(settings_of_part(path.removeprefix(f"{PARTS}."))))
    near = nearest(name, names)
    hint = f"did you mean {path}.{near}?" if near else f"{path} has {', '.join(names)}"
    return ConfigError(f"{path}.{name}: unknown key; {hint}")


def apply_overrides(
    values: Mapping[str, Any] | ConfigDict, overrides: Iterable[tuple[str, str]] = ()
) -> dict[str, Any]:
    """A plain copy of ``values`` with dotted keys set from text, in order; the last of two for one key wins.

    References between the settings of a recipe (``config.get_ref``) follow what is overridden.

    Example: ``apply_overrides({}, [("model.d_ff", "512")])`` is ``{"model": {"d_ff": 512}}``.

    Raises:
        ConfigError: an unknown key, text that does not read as the type of the setting, or a required one left open.
    """
    config = ConfigDict(copy.deepcopy(values))
    # The settings themselves decide whether types fit, not the values that the recipe happened to state.
    with config.unlocked(), config.ignore_type():
        _rename_deprecated(config)
        for given, text in overrides:
            key = current_key(given, warn=True)
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
    """The settings as plain nested dictionaries, every reference followed."""
    result = {}
    for name in config:
        key = join_key(path, str(name))
        try:
            value = config[name]
        except RequiredValueError:
            raise ConfigError(f"{key}: the recipe leaves it open; give --config.{key}=VALUE") from None
        result[name] = _plain(value, key) if isinstance(value, ConfigDict) else value
    return result


def spelled_out(key: str, text: str) -> list[tuple[str, str]]:
    """``("mesh", "data=-1,fsdp=4")`` as ``mesh.data`` and ``mesh.fsdp``; a key that is no block stays one setting."""
    if "=" not in text or block_at(key) is None:
        return [(key, text)]
    parts = (part.strip().partition("=") for part in text.split(","))
    return [(f"{key}.{name}", value) for name, _, value in parts]


def joined_files(overrides: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """One override for ``data.train=a.en data.train=a.de``, which is what a shell makes of ``data.train=a.{en,de}``."""
    joined: list[tuple[str, str]] = []
    for key, text in overrides:
        before = joined[-1] if joined else ("", "")
        is_pair = key in NAMED_FILES and before[0] == key and not any("," in each for each in (before[1], text))
        joined[-1 if is_pair else len(joined) :] = [(key, f"{before[1]},{text}" if is_pair else text)]
    return joined


def read_value(key: str, text: str) -> str | int | float | bool:
    """The value that ``text`` states for the setting ``key``.

    Raises:
        ConfigError: an unknown key, or text that does not read as the type of the setting.
    """
    kind = type_of(key)
    try:
        return _read_bool(text) if kind is bool else kind(text)
    except ValueError:
        raise ConfigError(f"{key}: expected {EXPECTED[kind]}, found {text!r}") from None


def _read_bool(text: str) -> bool:
    if text.lower() in TRUE_WORDS:
        return True
    if text.lower() in FALSE_WORDS:
        return False
    raise ValueError(text)


def current_key(key: str, *, warn: bool = False) -> str:
    """The present name of a key that may be an old one."""
    new = DEPRECATED.get(key, key)
    if warn and new != key:
        _warn(key, new)
    return new


def _rename_deprecated(config: ConfigDict) -> None:
    """Moves settings of a recipe from old keys to new ones, references included; raises ConfigError if it states both."""
    for old, new in DEPRECATED.items():
        path, _, name = old.partition(".")
        block = config.get(path)
        if not isinstance(block, ConfigDict) or name not in block:
            continue
        new_name = new.partition(".")[2]
        if new_name in block:
            raise ConfigError(f"{old}: is the old name of {new}, which the recipe states too; remove it")
        block[new_name] = block.get_ref(name)
        del block[name]
        _warn(old, new)


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}; the next release no longer accepts the old name", FutureWarning, stacklevel=3)
