"""Indexes: the parts, commands and functions that a folder brings, without importing it.

A folder of the package, a tool in ``tools/NAME/``, or a tool of another distribution has an
``index.toml``::

    needs = ["sizing"]                     # tools that all of this tool needs

    [parts.tokenizer]                      # kind of parts: module = "names that it registers"
    parsing_parts = "symbol word_class"

    [commands.parse]
    function = "parse_command:parse"
    group = "use"
    help = "parse sentences: print their constituency trees"
    needs = ["pictures"]                   # tools that this command needs besides

    [doors.run_hooks]                      # a door of the core: name = "module:function"
    curves = "curves:curves_at_end"

Modules are named relative to their folder. Another distribution names the package of its tool as an
entry point of the group ``transformer_jax.tools``. docs/internals/architecture.md lists the doors.
"""

import importlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.errors import ConfigError
from transformer_jax.registry.kinds import KINDS

PACKAGE = "transformer_jax"
TOOL_ENTRY_POINTS = "transformer_jax.tools"
COMMAND_GROUPS = {
    "start": "Start",
    "use": "Use a trained model",
    "look": "Look inside",
    "compare": "Compare ideas and runs",
    "cluster": "Other machines",
}
DOORS = ("settings", "run_hooks", "next_steps", "sizes", "draw_attention", "require_stated", "examine_texts")
# Doors with at most one tool.
SINGLE_DOORS = ("settings", "draw_attention", "require_stated")
TARGET = re.compile(r"[\w.]+:\w+")


class Index(NamedTuple):
    """The index of a folder with the modules of ``package``; ``tool`` is empty for core and kit."""

    file: Path
    package: str
    tool: str
    needs: Sequence[str]
    parts: Mapping[str, Mapping[str, str]]
    commands: Mapping[str, Mapping[str, Any]]
    doors: Mapping[str, Mapping[str, str]]

    @property
    def is_kit(self) -> bool:
        return self.package == f"{PACKAGE}.kit"

    @property
    def is_core(self) -> bool:
        return not self.tool and not self.is_kit

    def load(self, key: str, target: str) -> Any:
        """Import and return ``module:name``. Raises ConfigError if there is no such object."""
        module, _, name = target.partition(":")
        try:
            return getattr(importlib.import_module(f"{self.package}.{module}"), name)
        except ModuleNotFoundError as error:
            if error.name and not f"{self.package}.{module}".startswith(error.name):
                raise
            raise ConfigError(str(self.file), f"{key}: {error}") from error
        except AttributeError as error:
            raise ConfigError(str(self.file), f"{key}: {error}") from error


class ListedCommand(NamedTuple):
    """A command, all tools that it needs, and the index that names its function."""

    name: str
    group: str
    summary: str
    needs: Sequence[str]
    owner: Index

    @property
    def missing(self) -> list[str]:
        """The needed tools that are not installed."""
        return [tool for tool in self.needs if not is_usable(tool)]

    def load(self) -> Any:
        """Import the command. Raises ConfigError if a tool that it needs is missing."""
        if self.missing:
            raise ConfigError(
                self.name, f"needs the tool {' and the tool '.join(self.missing)}, which is not installed"
            )
        return self.owner.load(f"commands.{self.name}", self.owner.commands[self.name]["function"])


class ListedPart(NamedTuple):
    """A part: the module that registers it, and the index that says so."""

    module: str
    owner: Index


def _read(file: Path, package: str, tool: str = "") -> Index:
    """Read an index. Raises ConfigError for an unknown key or a value of another form."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(str(file), f"cannot be read: {error}") from error
    tables: dict[str, Any] = {name: content.pop(name, {}) for name in ("parts", "commands", "doors")}
    needs = content.pop("needs", [])
    if content:
        raise ConfigError(str(file), f"unknown key {min(content)}", "expected needs, parts, commands, doors")
    for name, table in tables.items():
        if not isinstance(table, dict) or not all(isinstance(entries, dict) for entries in table.values()):
            raise ConfigError(str(file), f"{name}: expected tables [{name}.NAME]")
    for name, command in tables["commands"].items():
        if command.keys() - {"needs"} != {"function", "group", "help"} or command["group"] not in COMMAND_GROUPS:
            raise ConfigError(
                str(file), f"commands.{name}: expected function, help and group, one of {', '.join(COMMAND_GROUPS)}"
            )
    if odd := tables["doors"].keys() - {*DOORS}:
        raise ConfigError(str(file), f"doors.{min(odd)}: is not a door", f"doors are {', '.join(DOORS)}")
    targets = {f"doors.{door}.{name}": to for door, entries in tables["doors"].items() for name, to in entries.items()}
    targets |= {f"commands.{name}.function": command["function"] for name, command in tables["commands"].items()}
    for key, target in targets.items():
        if not isinstance(target, str) or not TARGET.fullmatch(target):
            raise ConfigError(str(file), f"{key}: expected 'module:function' (got {target!r})")
    lists = {"needs": needs} | {
        f"commands.{name}.needs": command.get("needs", []) for name, command in tables["commands"].items()
    }
    for key, names in lists.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(str(file), f"{key}: expected a list of names of tools")
    for kind, modules in tables["parts"].items():
        if kind not in KINDS:
            raise ConfigError(str(file), f"parts.{kind}: is not one of {', '.join(KINDS)}")
        if not all(isinstance(names, str) for names in modules.values()):
            raise ConfigError(str(file), f"parts.{kind}: expected module = 'NAME NAME ...'")
    return Index(file, package, tool, needs, **tables)


@cache
def own_indexes() -> tuple[Index, ...]:
    """Return the indexes of the package by name: its folders, then the kit, then its tools."""
    root = Path(__file__).parents[1]
    folders = sorted(
        (file.parent for file in root.glob("*/index.toml")), key=lambda path: (path.name == "kit", path.name)
    )
    tools = sorted(file.parent for file in root.glob("tools/*/index.toml"))
    return (
        *(_read(path / "index.toml", f"{PACKAGE}.{path.name}") for path in folders),
        *(_read(path / "index.toml", f"{PACKAGE}.tools.{path.name}", path.name) for path in tools),
    )


@cache
def indexes() -> tuple[Index, ...]:
    """Return the indexes of the package and of tools of other distributions, without imports.

    Raises ConfigError for a tool without an index, and when two of them have a tool, a command, a
    part or a door in common.
    """
    listed = [*own_indexes(), *(_index_of(entry_point) for entry_point in entry_points(TOOL_ENTRY_POINTS))]
    owners: dict[tuple[str, ...], Index] = {}
    for index in listed:
        entries: list[tuple[str, ...]] = [("tool", index.tool)] if index.tool else []
        entries += [*_parts_of(index), *(("command", name) for name in index.commands)]
        for door, names in index.doors.items():
            entries += [("door", door)] if door in SINGLE_DOORS else [("door", door, name) for name in names]
        for entry in entries:
            if entry in owners:
                raise ConfigError(str(index.file), f"{' '.join(entry)} is already in {owners[entry].file}")
            owners[entry] = index
    return tuple(listed)


@cache
def entry_points(group: str) -> Sequence[Any]:
    """Return the entry points of a group of the installed distributions, by name."""
    return sorted(point for point in _all_entry_points() if point.group == group)


@cache
def _all_entry_points() -> Sequence[Any]:
    # Here: it is slow to import. Reading all groups at once costs as much as one.
    from importlib import metadata

    return [*metadata.entry_points()]


def _index_of(entry_point: Any) -> Index:
    """Read the index of a tool of another distribution. Raises ConfigError if it is missing."""
    from importlib.util import find_spec

    try:
        spec = find_spec(entry_point.value)
    except (ImportError, ValueError):
        spec = None
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        if (file := Path(folder, "index.toml")).is_file():
            return _read(file, entry_point.value, entry_point.name)
    distribution = entry_point.dist.name if entry_point.dist else "an installed distribution"
    problem = f"its tool {entry_point.name} names {entry_point.value}, which is no package with an index.toml"
    raise ConfigError(distribution, problem, "fix or uninstall it")


def _parts_of(index: Index) -> dict[tuple[str, str], ListedPart]:
    return {
        (kind, name): ListedPart(f"{index.package}.{module}", index)
        for kind, modules in index.parts.items()
        for module, names in modules.items()
        for name in names.split()
    }


@cache
def own_parts() -> Mapping[tuple[str, str], ListedPart]:
    """Return the parts of the package by kind and name, the core first."""
    return {part: listed for index in own_indexes() for part, listed in _parts_of(index).items()}


@cache
def all_parts() -> Mapping[tuple[str, str], ListedPart]:
    """Return the parts of the package, then the parts of other distributions."""
    return {part: listed for index in indexes() for part, listed in _parts_of(index).items()}


def own_commands() -> dict[str, ListedCommand]:
    """Return the commands of the package by name, without other distributions."""
    return {command.name: command for index in own_indexes() for command in _commands_of(index)}


def _commands_of(index: Index) -> list[ListedCommand]:
    return [
        ListedCommand(name, entry["group"], entry["help"], [*index.needs, *entry.get("needs", [])], index)
        for name, entry in index.commands.items()
    ]


def commands() -> dict[str, ListedCommand]:
    """Return all commands by name, in the order of their groups."""
    listed = [command for index in indexes() for command in _commands_of(index)]
    groups = [*COMMAND_GROUPS]
    return {command.name: command for command in sorted(listed, key=lambda command: groups.index(command.group))}


def is_usable(tool: str) -> bool:
    """Return whether a tool and all tools that it needs are installed."""
    return any(index.tool == tool and all(map(is_usable, index.needs)) for index in indexes())


def behind(door: str) -> dict[str, Any]:
    """Import and return what usable tools offer at a door, by name."""
    if door not in DOORS:
        raise KeyError(door)
    return {
        name: index.load(f"doors.{door}.{name}", target)
        for index in indexes()
        for name, target in index.doors.get(door, {}).items()
        if all(map(is_usable, index.needs))
    }


def single_behind(door: str) -> Any:
    """Import and return the object that the only tool at a door offers, or None."""
    return next(iter(behind(door).values()), None)
