"""Indexes: the parts, commands and functions that a folder brings, readable without importing any of its modules.

A folder of the package, a tool in ``tools/NAME/``, or a tool of another distribution has an ``index.toml``::

    needs = ["pictures"]                   # tools that this tool imports

    [parts.tokenizer]                      # kind of parts: module = "names that it registers"
    parsing_registration = "symbol word_class"

    [commands.parse]
    function = "parse_command:parse"
    group = "use"
    help = "parse sentences: print their constituency trees"

    [doors.run_hooks]                      # a door of the core: name = "module:function"
    curves = "curves:curves_of_run"

Another distribution names the package of its tool as an entry point of the group ``transformer_jax.tools``. Modules are
named relative to their folder. docs/architecture.md lists the doors.
"""

import importlib
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "transformer_jax"
TOOL_ENTRY_POINTS = "transformer_jax.tools"
COMMAND_GROUPS = ("start", "use", "look", "compare", "cluster")
DOORS = ("settings", "run_hooks", "next_steps", "sizes", "draw_attention", "require_stated")
FIELDS = {"function", "group", "help"}


class Index(NamedTuple):
    """The index of a folder: its file, the package of its modules, its tool (empty for core and kit), and its tables."""

    file: Path
    package: str
    tool: str
    needs: tuple[str, ...]
    parts: Mapping[str, Mapping[str, str]]
    commands: Mapping[str, Mapping[str, str]]
    doors: Mapping[str, Mapping[str, str]]


class ListedCommand(NamedTuple):
    """A command of an index: ``MODULE:FUNCTION``, its group and summary in ``--help``, and its index."""

    function: str
    group: str
    summary: str
    owner: Index

    def load(self) -> Any:
        """Import the command; raise ConfigError if a tool that it needs is absent."""
        absent = [tool for tool in self.owner.needs if tool not in tools()]
        if absent:
            raise _error(f"needs the tools {', '.join(absent)}, which are not installed", self.owner.file)
        return imported_object(self.function)


def _error(problem: str, file: Path) -> Exception:
    # Here: the package `config` imports libraries that a list of commands does without.
    from transformer_jax.config.errors import ConfigError

    return ConfigError(f"{file}: {problem}")


def _read(file: Path, package: str, tool: str = "") -> Index:
    """Read an index; raise ConfigError, with the file, for an unknown key or a value of another form."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _error(f"cannot be read: {error}", file) from error
    tables = {"parts", "commands", "doors"}
    if odd := content.keys() - tables - {"needs"}:
        raise _error(f"unknown key {min(odd)}; expected needs, parts, commands, doors", file)
    needs = content.get("needs", [])
    if not isinstance(needs, list) or not all(isinstance(name, str) for name in needs):
        raise _error("needs: expected a list of names of tools", file)
    for table in tables & content.keys():
        for name, entries in content[table].items() if isinstance(content[table], dict) else [("", None)]:
            if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
                raise _error(f"{table}.{name}: expected a table of strings", file)
    for name, command in content.get("commands", {}).items():
        if command.keys() != FIELDS or command["group"] not in COMMAND_GROUPS:
            raise _error(
                f"commands.{name}: expected function, help and group, one of {', '.join(COMMAND_GROUPS)}", file
            )
    if odd := content.get("doors", {}).keys() - set(DOORS):
        raise _error(f"doors.{min(odd)}: is not a door; doors are {', '.join(DOORS)}", file)
    return Index(
        file, package, tool, tuple(needs), *(content.get(table, {}) for table in ("parts", "commands", "doors"))
    )


KIT = f"{PACKAGE}.kit"


@cache
def own_indexes() -> tuple[Index, ...]:
    """Return the indexes of the package: its folders, the kit after the core, then its tools, by name."""
    root = Path(__file__).parent
    folders = sorted(
        (file.parent for file in root.glob("*/index.toml")), key=lambda path: (path.name == "kit", path.name)
    )
    tools_here = sorted(file.parent for file in root.glob("tools/*/index.toml"))
    return (
        *(_read(path / "index.toml", f"{PACKAGE}.{path.name}") for path in folders),
        *(_read(path / "index.toml", f"{PACKAGE}.tools.{path.name}", path.name) for path in tools_here),
    )


@cache
def indexes() -> tuple[Index, ...]:
    """Return the indexes of the package and of tools of other distributions, which are found but not imported.

    Raises ConfigError for a tool without an index, and where two of them have a command, a part or a tool of the same name.
    """
    from importlib import metadata
    from importlib.util import find_spec

    found = [*own_indexes()]
    for entry_point in sorted(metadata.entry_points(group=TOOL_ENTRY_POINTS)):
        spec = find_spec(entry_point.value)
        folders = (spec.submodule_search_locations if spec else None) or []
        files = [file for folder in folders if (file := Path(folder, "index.toml")).is_file()]
        if not files:
            distribution = entry_point.dist.name if entry_point.dist else entry_point.name
            raise _error(f"the tool {entry_point.name} of {distribution} has no index.toml", Path(entry_point.value))
        found.append(_read(files[0], entry_point.value, entry_point.name))
    owners: dict[tuple[str, str], Index] = {}
    for index in found:
        names = [("tool", index.tool)] * bool(index.tool) + [("command", name) for name in index.commands]
        for owned in [*names, *_parts_of(index)]:
            if owned in owners:
                raise _error(f"{owned[0]} {owned[1]!r} is already in {owners[owned].file}", index.file)
            owners[owned] = index
    return tuple(found)


def _parts_of(index: Index) -> dict[tuple[str, str], str]:
    return {
        (kind, name): f"{index.package}.{module}"
        for kind, modules in index.parts.items()
        for module, names in modules.items()
        for name in names.split()
    }


@cache
def own_parts() -> dict[tuple[str, str], str]:
    """Return the modules that register the parts of the package, by kind and name; parts of the core come first."""
    return {part: module for index in own_indexes() for part, module in _parts_of(index).items()}


@cache
def core_parts() -> dict[tuple[str, str], str]:
    """Return the modules that register the parts of the core, as ``own_parts``."""
    core = [index for index in own_indexes() if not index.tool and index.package != KIT]
    return {part: module for index in core for part, module in _parts_of(index).items()}


@cache
def kit_parts() -> dict[tuple[str, str], str]:
    """Return the modules that register the parts of the kit, as ``own_parts``."""
    return {part: module for part, module in own_parts().items() if module.startswith(f"{KIT}.")}


@cache
def parts_elsewhere() -> dict[tuple[str, str], str]:
    """Return the parts of tools of other distributions, as ``own_parts``."""
    return {part: module for index in indexes()[len(own_indexes()) :] for part, module in _parts_of(index).items()}


def commands() -> dict[str, ListedCommand]:
    """Return all commands by name, in the order of their groups."""
    listed = {
        name: ListedCommand(f"{index.package}.{entry['function']}", entry["group"], entry["help"], index)
        for index in indexes()
        for name, entry in index.commands.items()
    }
    return dict(sorted(listed.items(), key=lambda item: COMMAND_GROUPS.index(item[1].group)))


def tools() -> tuple[str, ...]:
    """Return the names of the tools that are here."""
    return tuple(index.tool for index in indexes() if index.tool)


def behind(door: str) -> dict[str, Any]:
    """Import and return what tools offer at a door of the core, by name; empty where no tool does."""
    if door not in DOORS:
        raise KeyError(door)
    return {
        name: imported_object(f"{index.package}.{target}")
        for index in indexes()
        for name, target in index.doors.get(door, {}).items()
        if set(index.needs) <= set(tools())
    }


def imported_object(target: str) -> Any:
    """Return the object ``module:name``."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
