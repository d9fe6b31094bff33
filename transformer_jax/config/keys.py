"""The tree of setting names, read from the dataclasses, and the errors for unknown names."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_type_hints

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.names import nearest
from transformer_jax.config.renamed import REMOVED, current_key
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, TASKS, any_kind_of

Block = type | UnionType
"""A settings dataclass, or where a block may be of several kinds the union of theirs; then all their fields count."""


def fields_of(block: Block) -> MappingProxyType[str, Any]:
    """The field names with their types, in the order of the declaration."""
    return _fields_of(block, tuple(TASKS))


@cache
def _fields_of(block: Block, tasks: tuple[str, ...]) -> MappingProxyType[str, Any]:
    del tasks  # A plugin that adds one may add fields.
    fields: dict[str, Any] = {}
    for kind in get_args(block) or (block,):
        fields |= get_type_hints(kind)
    if block is ExperimentConfig:
        fields |= {name: any_kind_of(name) for name in BLOCKS_OF_TASKS}
    return MappingProxyType(fields)


def is_block(kind: Any) -> bool:
    """Whether a field holds a nested block of settings, of one kind or of several, rather than a value."""
    return is_dataclass(kind) or bool(get_args(kind))


def leaf_keys(block: Block = ExperimentConfig, prefix: str = "") -> Iterator[tuple[str, type]]:
    """Every dotted key below ``block`` with its type, for example ``("model.num_heads", int)``."""
    for name, kind in fields_of(block).items():
        if is_block(kind):
            yield from leaf_keys(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, kind


def join_key(path: str, name: str) -> str:
    """``join_key("model", "d_ff")`` is ``"model.d_ff"``; at the root the path is empty."""
    return f"{path}.{name}" if path else name


def block_at(path: str) -> Block:
    """The settings dataclass at a dotted path.

    Raises:
        ConfigError: there is none, with the nearest name.
    """
    block: Block = ExperimentConfig
    walked = ""
    for name in path.split(".") if path else []:
        kind = fields_of(block).get(name)
        walked = join_key(walked, name)
        if kind is None:
            raise unknown_key(walked)
        if not is_block(kind):
            raise ConfigError(f"{path}: {walked} is a value, not a block of settings")
        block = kind
    return block


def type_of(key: str) -> type:
    """The type of the setting at a dotted key, which may be the old name of a renamed one.

    Raises:
        ConfigError: the key is unknown, with the nearest one, or it is a block.
    """
    leaves = dict(leaf_keys())
    key = current_key(key)
    if key in leaves:
        return leaves[key]
    path, _, name = key.rpartition(".")
    known_path = not path or any(leaf.startswith(f"{path}.") for leaf in leaves)
    if known_path and is_block(fields_of(block_at(path)).get(name)):
        example = f"{key}={next(iter(fields_of(block_at(key))))}=VALUE,..."
        raise ConfigError(f"{key}: is a block; set keys of it ({example}): {', '.join(fields_of(block_at(key)))}")
    raise unknown_key(key)


def unknown_key(key: str) -> ConfigError:
    """The error for a key that does not exist: names the nearest keys, or else lists those of the block."""
    if key in REMOVED:
        return ConfigError(f"{key}: was removed; leave it out")
    path, _, name = key.rpartition(".")
    leaves = [leaf for leaf, _ in leaf_keys()]
    blocks = sorted({leaf.rpartition(".")[0] for leaf in leaves} - {""})
    in_block = not path or path in blocks
    siblings = list(fields_of(block_at(path))) if in_block else []
    candidates = _same_name_elsewhere(path, name, leaves)
    if not candidates and (sibling := nearest(name, siblings)):
        candidates = [join_key(path, sibling)]
    if not candidates and not in_block and (leaf := nearest(key, leaves)):
        candidates = [leaf]
    if candidates:
        return ConfigError(f"{key}: unknown key; did you mean {' or '.join(candidates)}?")
    owner = path if in_block and path else "the config"
    return ConfigError(f"{key}: unknown key; {owner} has {', '.join(siblings or fields_of(ExperimentConfig))}")


def _same_name_elsewhere(path: str, name: str, leaves: list[str]) -> list[str]:
    """Keys of the same last name: one in a block called nearly like ``path``, else all, unless they are many."""
    found = [leaf for leaf in leaves if leaf.rpartition(".")[2] == name]
    block = nearest(path, [leaf.rpartition(".")[0] for leaf in found])
    if block is not None:
        return [join_key(block, name)]
    return found if len(found) <= 3 else []
