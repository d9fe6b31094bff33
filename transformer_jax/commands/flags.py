"""Commands and their flags: ``--name=value``, ``--[no]name``, ``--config.KEY=VALUE``, and RUN."""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.commands.hints import check_word, unknown_flag
from transformer_jax.config import ConfigError, ExperimentConfig, apply_overrides, from_dict, resolve, to_dict
from transformer_jax.config.conversion import spelled_out, value_of
from transformer_jax.config.languages import ISO_639_1, base_language
from transformer_jax.config.recipes import find_recipe, is_recipe
from transformer_jax.config.run_settings import is_run_directory
from transformer_jax.errors import complain, nearest
from transformer_jax.files.json_text import is_unicode
from transformer_jax.registry.python_files import load_plugin

# Arguments after it are not flags of this command.
SEPARATOR = "--"
SETTING = re.compile(r"--?config\.([^=]*)(?:=(.*))?", re.DOTALL)
OVERRIDE_MEANING = "set one setting, for example --config.decoding.beam_width=5; transformer-jax config lists them all"
EXPECTED = {int: "a whole number", float: "a number", bool: "true or false"}
# a.src,a.tgt and a.en.gz,a.de.gz.
_SUFFIXES = re.compile(r"([^,]+)\.[^./, ]+((?:\.(?:gz|xz|bz2|zst|txt))?),\1\.[^./, ]+\2")


class Values(argparse.Namespace):
    """The values of the flags of a command; ``present`` has their texts on the command line."""

    def __init__(self) -> None:
        super().__init__(present={}, config_override=[], arguments=[])

    def as_arguments(self) -> list[str]:
        """Return the flags as arguments, for the same command in another process."""
        written = [f"--{name}={text}" for name, texts in self.present.items() for text in texts]
        return [*written, *(f"--config.{override}" for override in self.config_override), *self.arguments]


class Flag(argparse.Action):
    """A flag. Lists are ``separated`` by commas, or ``repeated``, or words after it."""

    kind: type = str
    names: tuple[str, ...] = ()
    lower_bound: float | None = None
    upper_bound: float | None = None
    is_required = separated = repeated = takes_words = False

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Set the value of the flag, or add to it. Raises ConfigError for text that is no value."""
        flag = self.option_strings[0]
        if option_string not in (None, flag):
            complain(f"transformer-jax: {option_string} is {flag} now")
        for text in values if isinstance(values, list) else [values]:
            if text == "=":
                raise ConfigError(flag, "no spaces around =", f"write {flag}=VALUE")
            value, before = self._value(flag, text), namespace.present.get(self.dest, [])
            if before and self.dest in ("config", "workdir") and value != before[-1]:
                raise ConfigError(flag, f"is both {before[-1]} and {value}", "leave one out")
            is_list = self.repeated or self.separated
            if is_list:
                value = [*(getattr(namespace, self.dest) if before else ()), *(value if self.separated else [value])]
            namespace.present[self.dest] = [*(before if is_list else ()), text]
            setattr(namespace, self.dest, value)

    def _value(self, flag: str, text: str) -> Any:
        try:
            value: Any = value_of(self.kind, text)
        except ValueError:
            raise ConfigError(flag, f"expected {EXPECTED[self.kind]}, found {text!r}") from None
        if self.names and value not in self.names:
            near = nearest(text, self.names)
            names = f"{', '.join(self.names)}{f' (did you mean {near}?)' if near else ''}"
            raise ConfigError(flag, f"{text!r} is not one of {names}")
        # In this form NaN is refused too.
        if self.lower_bound is not None and not value >= self.lower_bound:
            raise ConfigError(flag, f"{text} must be at least {self.lower_bound}")
        if self.upper_bound is not None and not value <= self.upper_bound:
            raise ConfigError(flag, f"{text} must be at most {self.upper_bound}")
        if self.separated:
            value = [part.strip() for part in text.split(",")] if text else []
            if "" in value:
                raise ConfigError(flag, f"{text!r} has an empty item", "remove a comma")
        return value

    def described(self) -> tuple[str, str]:
        """Return its syntax, and its meaning with the default, for help."""
        default = "" if self.default in (None, "", []) else f" (default: {self.default})"
        shown = "|".join(self.names) or {int: "N", float: "NUMBER"}.get(self.kind, "VALUE")
        return f"--[no]{self.dest}" if self.kind is bool else f"--{self.dest}={shown}", f"{self.help}{default}"


class Parser(argparse.ArgumentParser):
    """Reads the flags of a command."""

    def __init__(self, defined: "Iterable[Define]") -> None:
        super().__init__(add_help=False, allow_abbrev=False, exit_on_error=False)
        self.flags: dict[str, Flag] = {}
        self.takes_settings = False
        self.words, self.meaning_of_words = "", ""
        for define in (*defined, common):
            define(self)

    @property
    def takes_run(self) -> bool:
        """Whether the first argument that is not a flag is the folder of the run."""
        return "workdir" in self.flags and not self.words

    def is_boolean(self, name: str) -> bool:
        return name in self.flags and self.flags[name].kind is bool

    def spelled(self, arguments: Iterable[str]) -> Iterator[str]:
        """Yield arguments as declared: ``_`` for ``-``, ``--json=false`` for ``--nojson``."""
        for argument in arguments:
            written, equals, text = argument.partition("=")
            name = written.lstrip("-").replace("-", "_")
            negated = name.removeprefix("no").lstrip("_")
            if argument.startswith("-") and name in self.flags:
                yield f"--{name}=true" if self.is_boolean(name) and not equals else f"--{name}{equals}{text}"
            elif argument.startswith("-") and name.startswith("no") and self.is_boolean(negated):
                if equals:
                    raise ConfigError(written, "takes no value", f"write --{negated}=true or --{negated}=false")
                yield f"--{negated}=false"
            else:
                yield argument

    def without_settings(self, arguments: Iterable[str], values: Values) -> Iterator[str]:
        """Put ``--config.KEY=VALUE`` and ``--config.KEY VALUE`` into ``values``, yield the rest."""
        remaining = iter(arguments)
        for argument in remaining:
            if not (match := SETTING.fullmatch(argument)):
                yield argument
                continue
            written, (key, text) = argument.partition("=")[0], match.groups()
            if not self.takes_settings:
                raise ConfigError(written, "this command takes no settings", "--help lists its flags")
            text = next(remaining, "--") if text is None else text
            if "=" not in argument and text.startswith("="):
                raise ConfigError(written, "no spaces around =", f"write {written}=VALUE")
            if "=" not in argument and text.startswith("--"):
                raise ConfigError(written, "a value is missing", f"write {written}=VALUE")
            values.config_override.append(f"{key}={text}")


Define = Callable[[Parser], object]
"""Defines one flag, or several, of a command."""


class Command(NamedTuple):
    """A command: ``run`` returns the exit status, and its docstring is the help."""

    run: Callable[[Values], int]
    flags: tuple[Define, ...]


def command(*flags: Define) -> Callable[[Callable[[Values], int]], Command]:
    """Make a function a command with these flags."""
    return lambda run: Command(run, flags)


def _flag(
    name: str, default: Any, help: str, also: tuple[str, ...] = (), required: bool = False, **options: Any
) -> Define:
    """Return the definition of a flag; ``also``: its names in the release before."""

    def define(parser: Parser) -> None:
        names = [f"--{name}", *(f"--{earlier}" for earlier in also)]
        flag: Any = parser.add_argument(*names, action=Flag, default=default, help=help)
        # argparse would report a missing flag, and a wrong choice, in its own words.
        vars(flag).update(options, is_required=required)
        parser.flags[name] = flag

    return define


def enum(name: str, default: str | None, choices: Iterable[str], help: str, **options: Any) -> Define:
    return _flag(name, default, help, names=tuple(choices), **options)


string, integer, number = _flag, partial(_flag, kind=int), partial(_flag, kind=float)
boolean, repeated = partial(_flag, kind=bool), partial(_flag, repeated=True)
strings = partial(_flag, separated=True)
"""Separated by commas."""


def arguments(name: str, meaning: str) -> Define:
    """Define arguments that are not flags, ``values.arguments``; help calls them ``name``."""

    def define(parser: Parser) -> None:
        parser.words, parser.meaning_of_words = name, meaning

    return define


def overrides(parser: Parser) -> None:
    """Define ``--config.KEY=VALUE`` without ``--config``, to override settings of a run."""
    parser.takes_settings = True


def config(parser: Parser, required: bool = True) -> None:
    """Define ``--config=RECIPE[:ARGUMENT]`` and ``--config.KEY=VALUE``. See ``resolve_config``."""
    meaning = "a recipe, for example multi30k:tiny or mine.py, or the directory of a run (a folder with config.json)"
    string("config", None, meaning, required=required)(parser)
    overrides(parser)


optional_config = partial(config, required=False)


def common(parser: Parser) -> None:
    """Define ``--plugin=FILE`` and ``--trust_config``, which every command takes."""
    meaning = "Python file that registers attentions, data sources, trackers ..., one a flag (docs/extending.md)"
    repeated("plugin", [], meaning)(parser)
    boolean("trust_config", False, "use a run although its config.json or a --plugin file has changed")(parser)


distributed = boolean(
    "distributed", False, "this is one of several processes that run the same command, as on the hosts of a cluster"
)


def overrides_of(values: Values) -> list[tuple[str, str]]:
    """Return the overrides, ``[("decoding.beam_width", "5"), ...]``.

    ``mesh=data=2,fsdp=4`` gives two.
    """
    items = (item.partition("=") for item in values.config_override)
    return joined_files([setting for key, _, text in items for setting in spelled_out(key, text)])


def joined_files(overrides: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join ``data.train=a.en data.train=a.de``, from a shell's ``data.train=a.{en,de}``.

    Other repetitions stay: the last one wins.
    """
    joined: list[tuple[str, str]] = []
    for key, text in overrides:
        before = joined[-1] if joined else ("", "")
        is_pair = key in ("data.train", "data.validation", "data.test") and before[0] == key
        is_pair = is_pair and before[1] != text and _are_a_pair(before[1], text)
        joined[-1 if is_pair else len(joined) :] = [(key, f"{before[1]},{text}" if is_pair else text)]
    return joined


def _are_a_pair(first: str, second: str) -> bool:
    """Return whether two file names differ in one suffix or in one language."""
    parts = [re.split(r"([/._-])", name) for name in (first, second)]
    differ = [pair for pair in zip(*parts, strict=False) if len(set(pair)) > 1]
    is_language = len(differ) == 1 and all(base_language(part) in ISO_639_1 for part in differ[0])
    is_language &= len(parts[0]) == len(parts[1]) and " " not in first
    return is_language or bool(_SUFFIXES.fullmatch(f"{first},{second}"))


def resolve_config(values: Values, base: ExperimentConfig | None = None) -> ExperimentConfig:
    """Return the settings of the recipe (or ``base``) with the overrides. Raises ConfigError."""
    if base is not None:
        return from_dict(apply_overrides(to_dict(base), overrides_of(values)))
    return resolve(required_config(values), overrides_of(values))


def required_config(values: Values) -> str:
    """Return the recipe of --config. Raises ConfigError when it is empty."""
    if not values.config:
        raise ConfigError("--config", "give a recipe (transformer-jax recipes lists them), or the directory of a run")
    return values.config


def parse(flags: Iterable[Define], arguments: Sequence[str]) -> Values:
    """Return the values of the flags of a command, and load the plugins of --plugin.

    Raises ConfigError at an unknown flag, a bad value, a missing flag (or first a missing recipe),
    an extra argument, or one that is not UTF-8.
    """
    for argument in arguments:
        # Python decodes an invalid byte as half of a surrogate pair, which no file can hold.
        if not is_unicode(argument):
            name, equals, text = argument.partition("=")
            shown = f"{name}: {text!a}" if equals and is_unicode(name) else ascii(argument)
            raise ConfigError(f"{shown} is not valid UTF-8", remedy="write or rename it in UTF-8")
    parser, values = Parser(flags), Values()
    end = arguments.index(SEPARATOR) if SEPARATOR in arguments else len(arguments)
    spelled = [*parser.spelled(parser.without_settings(arguments[:end], values))]
    try:
        _, words = parser.parse_known_args(spelled, values)
    except argparse.ArgumentError as error:
        name = str(error.argument_name).partition("/")[0]
        meaning = parser.flags[name.removeprefix("--")].help
        raise ConfigError(name, "a value is missing", f"write {name}=VALUE, {meaning}") from None
    for word in words:
        if word.startswith("-") and word != "-":
            name = word.partition("=")[0]
            raise unknown_flag(name, parser.flags, usage=parser.words, takes_settings=parser.takes_settings)
        if not parser.words:
            before = ["", *spelled][spelled.index(word)].lstrip("-").partition("=")[0]
            boolean = before if parser.is_boolean(before) else ""
            check_word(word, parser.flags, boolean_before=boolean, takes_settings=parser.takes_settings)
    words += arguments[end + 1 :]
    takers = [flag for flag in parser.flags.values() if flag.takes_words and flag.dest in values.present]
    if parser.takes_run and "workdir" not in values.present and words:
        # --references a b RUN
        folders = (word for word in words if takers and (Path(word).is_dir() or "://" in word))
        run = next(folders, words[0])
        words.remove(run)
        parser.flags["workdir"](parser, values, run)
    for flag in takers:
        flag(parser, values, words)
        words = []
    _check_required(parser, values, words)
    if "trust_config" in values.present:
        os.environ["TRANSFORMER_JAX_TRUST_CONFIG"] = "1" if values.trust_config else "0"
    for plugin in values.plugin:
        load_plugin(plugin)
    if words and not parser.words:
        joins = "ensemble" in parser.flags and Path(words[0]).is_dir()
        hint = f"; to join runs write --ensemble={words[0]}" if joins else ""
        raise ConfigError(f"unexpected argument {words[0]!r}", remedy=f"flags are written --name=value{hint}")
    values.arguments = words
    return values


def _check_required(parser: Parser, values: Values, words: Sequence[str]) -> None:
    missing = [name for name, flag in parser.flags.items() if flag.is_required and getattr(values, name) is None]
    if not missing:
        return
    source = getattr(values, "config", None)
    if source and not is_run_directory(source):
        find_recipe(source.partition(":")[0])
    for word in (*words, getattr(values, "workdir", None) or "") if missing[0] == "config" else ():
        if is_recipe(word):
            raise ConfigError("--config", "is required", f"did you mean --config={word}?")
    raise ConfigError(f"--{missing[0]}", "is required", "--help shows an example")
