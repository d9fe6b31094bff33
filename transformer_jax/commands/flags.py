"""Commands and their flags: ``--name=value``, ``--name value``, ``--[no]name``, ``--config.KEY=VALUE``, and RUN first.

The parser is our own: libraries know neither settings nor ``RUN --references A B``, and their errors are texts without a key.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.config import ConfigError, ExperimentConfig, apply_overrides, from_dict, resolve, to_dict
from transformer_jax.config.conversion import (
    BOOLEANS,
    block_at,
    either,
    leaf_keys,
    other_toolkits,
    settings_called,
    similar_settings,
    spelled_out,
    value_of,
)
from transformer_jax.config.languages import ISO_639_1, base_language
from transformer_jax.config.recipes import find_recipe, is_recipe
from transformer_jax.config.run_settings import is_run_directory
from transformer_jax.errors import complain, nearest
from transformer_jax.files.json_text import is_unicode
from transformer_jax.registry.python_files import load_plugin

CONFIG_FLAG, PLUGIN_FLAG, TRUST_FLAG = "config", "plugin", "trust_config"
# Collects --config.KEY=VALUE as KEY=VALUE, in the order of the command line.
OVERRIDE_FLAG = "config_override"
# Collects arguments that are not flags.
ARGUMENTS_FLAG = "arguments"
# The flag of the first argument without a name.
WORKDIR_FLAG = "workdir"
# Arguments after it are not flags of this command.
SEPARATOR = "--"
OVERRIDE_MEANING = "set one setting, for example --config.decoding.beam_width=5; transformer-jax config lists them all"
EXPECTED = {int: "a whole number", float: "a number", bool: "true or false"}
# a.src,a.tgt and a.en.gz,a.de.gz.
_SUFFIXES = re.compile(r"([^,]+)\.[^./, ]+((?:\.(?:gz|xz|bz2|zst|txt))?),\1\.[^./, ]+\2")


@dataclass
class FlagValue:
    """A flag of a command, its value on a command line, and whether it is there."""

    name: str
    value: Any
    help: str
    kind: type = str
    choices: tuple[str, ...] = ()
    bounds: tuple[float | None, float | None] = (None, None)
    required: bool = False
    also: tuple[str, ...] = ()
    """Its names in the release before."""
    separated: bool = False
    repeated: bool = False
    present: bool = False

    def set(self, text: str) -> None:
        """Set, or add to, the value; raise ConfigError for text that is none."""
        kind, (lowest, highest) = self.kind, self.bounds
        try:
            value: Any = value_of(kind, text)
        except ValueError:
            raise ConfigError(f"--{self.name}", f"expected {EXPECTED[kind]}, found {text!r}") from None
        if self.choices and value not in self.choices:
            near = nearest(text, self.choices)
            known = f"{', '.join(self.choices)}{f' (did you mean {near}?)' if near else ''}"
            raise ConfigError(f"--{self.name}", f"{text!r} is not one of {known}")
        # In this form NaN is refused too.
        if lowest is not None and not value >= lowest:
            raise ConfigError(f"--{self.name}", f"{text} must be at least {lowest}")
        if highest is not None and not value <= highest:
            raise ConfigError(f"--{self.name}", f"{text} must be at most {highest}")
        if self.separated:
            value = [part.strip() for part in text.split(",")] if text else []
            if "" in value:
                raise ConfigError(f"--{self.name}", f"{text!r} has an empty item", "remove a comma")
        if self.present and self.name in (CONFIG_FLAG, WORKDIR_FLAG) and value != self.value:
            raise ConfigError(f"--{self.name}", f"is both {self.value} and {value}", "leave one out")
        self.value = [*(self.value if self.present else ()), value] if self.repeated else value
        self.present = True

    def described(self) -> tuple[str, str]:
        """Return its syntax, and its meaning with the default, for help."""
        if self.name == OVERRIDE_FLAG:
            return "--config.KEY=VALUE", self.help
        if self.name == ARGUMENTS_FLAG:
            name, _, meaning = self.help.partition(": ")
            return name, meaning
        default = "" if self.value in (None, "", []) else f" (default: {self.value})"
        shown = "|".join(self.choices) or {int: "N", float: "NUMBER"}.get(self.kind, "VALUE")
        return f"--[no]{self.name}" if self.kind is bool else f"--{self.name}={shown}", self.help + default


class Values(dict[str, FlagValue]):
    """The flags of a command by name; an attribute is the value of its flag."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name].value

    def __setattr__(self, name: str, value: Any) -> None:
        self[name].value = value

    def as_arguments(self) -> list[str]:
        """Return the flags that are present as arguments, for the same command in another process."""
        words: list[str] = []
        for name, flag in self.items():
            values = flag.value if flag.repeated else [",".join(flag.value) if flag.separated else flag.value]
            before = {OVERRIDE_FLAG: "--config.", ARGUMENTS_FLAG: ""}.get(name, f"--{name}=")
            words += [f"{before}{value}" for value in values] if flag.present else []
        return words

    def flag_values_dict(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: flag.value for name, flag in self.items()}


Flag = Callable[[Values], object]
"""Defines one flag, or several, on the values of a command."""


class Command(NamedTuple):
    """A command: ``run`` takes the values of its flags and returns the exit status; its docstring is the help."""

    run: Callable[[Values], int]
    flags: tuple[Flag, ...]


def command(*flags: Flag) -> Callable[[Callable[[Values], int]], Command]:
    """Decorator: makes a function a command with these flags."""
    return lambda run: Command(run, flags)


def _flag(name: str, default: Any, help: str, lower_bound: Any = None, upper_bound: Any = None, **options: Any) -> Flag:
    def define(values: Values) -> None:
        value = list(default) if isinstance(default, list) else default
        values[name] = FlagValue(name, value, help, bounds=(lower_bound, upper_bound), **options)

    return define


def enum(name: str, default: str | None, choices: Iterable[str], help: str, **options: Any) -> Flag:
    return _flag(name, default, help, choices=tuple(choices), **options)


string, integer, number = _flag, partial(_flag, kind=int), partial(_flag, kind=float)
boolean, repeated = partial(_flag, kind=bool), partial(_flag, repeated=True)
strings = partial(_flag, separated=True)
"""Separated by commas."""


def arguments(name: str, meaning: str) -> Flag:
    """Arguments that are not flags, as ``values.arguments``; help calls them ``name``: ``RUN ...``."""
    return repeated(ARGUMENTS_FLAG, [], f"{name}: {meaning}")


overrides = repeated(OVERRIDE_FLAG, [], OVERRIDE_MEANING)
"""``--config.KEY=VALUE`` without ``--config``, to override settings of a run."""


def config(values: Values, required: bool = True) -> None:
    """``--config=RECIPE[:ARGUMENT]`` and ``--config.KEY=VALUE``; see ``resolve_config``."""
    meaning = "a recipe, for example multi30k:tiny or mine.py, or the directory of a run (a folder with config.json)"
    string(CONFIG_FLAG, None, meaning, required=required)(values)
    overrides(values)


optional_config = partial(config, required=False)


def common(values: Values) -> None:
    """``--plugin=FILE`` and ``--trust_config``, which every command takes."""
    meaning = "Python file that registers attentions, data sources, trackers ..., one a flag; see docs/extending.md"
    repeated(PLUGIN_FLAG, [], meaning)(values)
    boolean(TRUST_FLAG, False, "use a run although its config.json or a --plugin file has changed")(values)


distributed = boolean(
    "distributed", False, "this is one of several processes that run the same command, as on the hosts of a cluster"
)


def overrides_of(values: Values) -> list[tuple[str, str]]:
    """Return the overrides, ``[("decoding.beam_width", "5"), ...]``; ``mesh=data=2,fsdp=4`` gives two."""
    items = (item.partition("=") for item in values.config_override)
    return joined_files([setting for key, _, text in items for setting in spelled_out(key, text)])


def joined_files(overrides: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join ``data.train=a.en data.train=a.de``, to which a shell expands ``data.train=a.{en,de}``; of others the last wins."""
    joined: list[tuple[str, str]] = []
    for key, text in overrides:
        before = joined[-1] if joined else ("", "")
        is_pair = key in ("data.train", "data.validation", "data.test") and before[0] == key
        is_pair = is_pair and before[1] != text and _are_a_pair(before[1], text)
        joined[-1 if is_pair else len(joined) :] = [(key, f"{before[1]},{text}" if is_pair else text)]
    return joined


def _are_a_pair(first: str, second: str) -> bool:
    """Whether two file names differ in one suffix (``a.src``, ``a.tgt``) or in one language (``en/a.txt``, ``de/a.txt``)."""
    parts = [re.split(r"([/._-])", name) for name in (first, second)]
    differ = [pair for pair in zip(*parts, strict=False) if len(set(pair)) > 1]
    is_language = len(differ) == 1 and all(base_language(part) in ISO_639_1 for part in differ[0])
    is_language &= len(parts[0]) == len(parts[1]) and " " not in first
    return is_language or bool(_SUFFIXES.fullmatch(f"{first},{second}"))


def resolve_config(values: Values, base: ExperimentConfig | None = None) -> ExperimentConfig:
    """Return the settings of the recipe (or ``base``, of a run) with the overrides; raise ConfigError at mistakes."""
    if base is not None:
        return from_dict(apply_overrides(to_dict(base), overrides_of(values)))
    return resolve(required_config(values), overrides_of(values))


def required_config(values: Values) -> str:
    """Return the recipe of --config; raise ConfigError when it is empty."""
    if not values.config:
        raise ConfigError("--config", "give a recipe (transformer-jax recipes lists them), or the directory of a run")
    return str(values.config)


def parse(flags: Sequence[Flag], arguments: Sequence[str]) -> Values:
    """Return the values of the flags of a command; loads the plugins of --plugin.

    Raises ConfigError at an unknown flag, a bad value, a missing flag (or first a missing recipe), an extra argument, or one
    that is not UTF-8.
    """
    for argument in arguments:
        # Python decodes an invalid byte as half of a surrogate pair, which no file of a run could hold.
        if not is_unicode(argument):
            name, equals, text = argument.partition("=")
            where = f"{name}: {text!a}" if equals and is_unicode(name) else ascii(argument)
            raise ConfigError(f"{where} is not valid UTF-8", remedy="write or rename it in UTF-8")
    values = Values()
    for define in (*flags, common):
        define(values)
    others = _read(arguments, values)
    if missing := [name for name in values if values[name].required and values[name].value is None]:
        source = values[CONFIG_FLAG].value if CONFIG_FLAG in values else ""
        if source and not is_run_directory(source):
            find_recipe(source.partition(":")[0])
        for word in (*others, getattr(values, WORKDIR_FLAG, None) or "") if missing[0] == CONFIG_FLAG else ():
            if is_recipe(word):
                raise ConfigError("--config", "is required", f"did you mean --config={word}?")
        raise ConfigError(f"--{missing[0]}", "is required; --help shows an example")
    if values[TRUST_FLAG].present:
        os.environ["TRANSFORMER_JAX_TRUST_CONFIG"] = "1" if values[TRUST_FLAG].value else "0"
    for plugin in values[PLUGIN_FLAG].value:
        load_plugin(plugin)
    if ARGUMENTS_FLAG in values:
        values[ARGUMENTS_FLAG].value = others
    elif others:
        joins = "ensemble" in values and Path(others[0]).is_dir()
        hint = f"; to join runs write --ensemble={others[0]}" if joins else ""
        raise ConfigError(f"unexpected argument {others[0]!r}", remedy=f"flags are written --name=value{hint}")
    return values


def _read(arguments: Sequence[str], values: Values) -> list[str]:
    """Set the flags; return the other arguments, without RUN.

    The first argument that is neither a flag nor its value is --workdir, unless that is given; later ones add to the list of
    the flag before them. So RUN comes first: ``--references A B RUN`` would take B for the run.
    """
    remaining, repeated, boolean_before = iter(arguments), "", ""
    others: list[str] = []
    has_workdir = any(re.match(rf"--?{WORKDIR_FLAG}(=|$)", each) for each in arguments)
    awaits_run = takes_run(values) and not has_workdir
    for argument in remaining:
        if argument == SEPARATOR:
            return [*others, *remaining]
        if not argument.startswith("-") or argument == "-":
            if ARGUMENTS_FLAG not in values and (awaits_run or not repeated):
                _check_bare(argument, boolean_before, values)
            if awaits_run or repeated:
                values[WORKDIR_FLAG if awaits_run else repeated].set(argument)
            else:
                others.append(argument)
            awaits_run = False
            continue
        written, equals, text = argument.partition("=")
        name, repeated, boolean_before = written.lstrip("-").replace("-", "_"), "", ""
        for flag in values.values() if name not in values else ():
            if name in flag.also:
                complain(f"transformer-jax: {written} is --{flag.name} now")
                name = flag.name
        if name.startswith("config."):
            if OVERRIDE_FLAG not in values:
                raise ConfigError(written, "this command takes no settings; --help lists its flags")
            flag, before = values[OVERRIDE_FLAG], f"{written.lstrip('-').removeprefix('config.')}="
        else:
            negated = name[2:].lstrip("_") if name not in values and name.startswith("no") else ""
            is_no = negated in values and values[negated].kind is bool
            if not is_no and (name not in values or name in (OVERRIDE_FLAG, ARGUMENTS_FLAG)):
                raise _unknown(written, name, values)
            flag, before = values[negated if is_no else name], ""
            if is_no and equals:
                raise ConfigError(written, "takes no value", f"write --{negated}=true or --{negated}=false")
            if flag.kind is bool and not equals:
                flag.set("false" if is_no else "true")
                boolean_before = flag.name
                continue
            repeated = name if flag.repeated and name != PLUGIN_FLAG else ""
        if not equals:
            value = next(remaining, None)
            if value is None or value.startswith("--"):
                meaning = f", {flag.help}" if not before else ""
                raise ConfigError(written, f"a value is missing; write {written}=VALUE{meaning}")
            if value == "=" or (before and value.startswith("=")):
                raise ConfigError(written, "no spaces around =", f"write {written}=VALUE")
            text = value
        flag.set(before + text)
    return others


def _check_bare(argument: str, boolean_before: str, values: Values) -> None:
    """Raise ConfigError for an argument without a dash that is not meant as the folder of a run."""
    name, equals, _ = argument.partition("=")
    name = name.removeprefix("config.")
    if boolean_before and argument.lower() in BOOLEANS:
        raise ConfigError(argument, "is not a flag", f"write --{boolean_before}={argument}")
    if argument == "-":
        raise ConfigError(argument, "is not the folder of a run")
    if equals and not name:
        raise ConfigError(argument, "no spaces around =", "flags are written --name=value")
    if equals and name in values:
        raise ConfigError(argument, "is not a flag", f"did you mean --{argument}?")
    if not equals or OVERRIDE_FLAG not in values:
        return
    if re.fullmatch(r"[a-z]\w*(\.\w+)+", name) or settings_called(name) or block_at(name):
        folder = f" A folder of this name is --{WORKDIR_FLAG}={argument}" if Path(argument).is_dir() else ""
        meant = argument.removeprefix("config.")
        raise ConfigError(argument, "is not a flag", f"did you mean --config.{meant}?{folder}")


def _unknown(written: str, name: str, values: Values) -> ConfigError:
    """Return the error for a flag that the command does not have: with its nearest flag, or the setting of this name."""
    if name == CONFIG_FLAG:
        takes = "write --config.KEY=VALUE" if OVERRIDE_FLAG in values else "--help lists the flags"
        return ConfigError(written, f"this command takes no recipe; {takes}")
    usage = values[ARGUMENTS_FLAG].described()[0] if ARGUMENTS_FLAG in values else ""
    if name == WORKDIR_FLAG and "RUN" in usage:
        return ConfigError(written, "the run is an argument of this command", f"write {usage}")
    here = set(values) - {OVERRIDE_FLAG, ARGUMENTS_FLAG}
    if advice := other_toolkits("advice").get(name):
        return ConfigError(written, "unknown flag", " ".join(advice))
    meant = _meant(name, here, sets=OVERRIDE_FLAG in values)
    hint = f"did you mean {either(meant)}?" if meant else "--help lists the flags"
    return ConfigError(written, "unknown flag", hint)


def _meant(name: str, here: set[str], *, sets: bool) -> list[str]:
    """Return the flags ``here``, or --config.KEY if the command ``sets`` settings, that an unknown flag may mean."""
    # A command on a trained run changes no training.
    trains, used = CONFIG_FLAG in here, ("decoding.", "mesh.", "evaluation.")
    named = other_toolkits("flags").get(name, [])
    if meant := [each for each in named if sets and trains and each.startswith("config.")]:
        return [f"--{each}" for each in meant]
    if meant := [each for each in named if each in here]:
        return [f"--{each}" for each in meant]
    keys: list[str] = []
    if sets:
        keys = (not trains and settings_called(f"decoding.{name}")) or settings_called(name)
    if sets and not keys and block_at(name):
        return [f"--config.{name}"]
    if sets and "." in name:
        keys = similar_settings(name)
    elif sets and not keys:
        names = {key.rpartition(".")[2]: key for key, _ in leaf_keys() if trains or key.startswith(used)}
        near = nearest(name, (*here, *names))
        keys = [names[near]] if near in names and near not in here else []
    first = [key for key in keys if key.startswith(used) is not trains]
    if meant := (first or keys if trains else first):
        return [f"--config.{key}" for key in meant]
    return [f"--{near}"] if (near := nearest(name, here)) else []


def takes_run(values: Values) -> bool:
    """Whether the first argument that is not a flag is the folder of the run."""
    return WORKDIR_FLAG in values and ARGUMENTS_FLAG not in values
