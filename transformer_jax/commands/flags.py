"""Commands and their flags: absl flags, separate for each command, with ``--config=RECIPE`` and ``--config.KEY=VALUE``.

The syntax follows ``ml_collections.config_flags``, whose parser can override only settings that the recipe states, and
reports a misspelled key by a traceback.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import absl.flags

from transformer_jax.config import ConfigError, ExperimentConfig, apply_overrides, from_dict, resolve, to_dict
from transformer_jax.config.checks import is_address
from transformer_jax.config.errors import nearest
from transformer_jax.config.experiment import is_run_directory, spelled_out
from transformer_jax.config.json_text import is_unicode
from transformer_jax.config.languages import ISO_639_1, base_language
from transformer_jax.config.plugins import load_plugin
from transformer_jax.config.recipes import find_recipe

CONFIG_FLAG = "config"
# a.src,a.tgt and a.en.gz,a.de.gz.
_SUFFIXES = re.compile(r"([^,]+)\.[^./, ]+((?:\.(?:gz|xz|bz2|zst|txt))?),\1\.[^./, ]+\2")
# Collects --config.KEY=VALUE as KEY=VALUE, in the order of the command line.
OVERRIDE_FLAG = "config_override"
PLUGIN_FLAG = "plugin"
TRUST_FLAG = "trust_config"
# Collects arguments that are not flags.
ARGUMENTS_FLAG = "arguments"
# The flag of the first argument without a name.
WORKDIR_FLAG = "workdir"
# Arguments after it are not flags of this command.
SEPARATOR = "--"
# Flags that name runs. ``init_from`` stays an address, which is recorded as the origin of the parameters.
RUN_FLAGS = ("workdir", "ensemble", "others", "config", "against", ARGUMENTS_FLAG)
# Commands that need no local copy of a run at an address: they read no run, pass the address on, or open it themselves (sweep).
AS_GIVEN = ("sweep", "duel", "launch", "import", "quickstart", "doctor")
OVERRIDE_MEANING = "set one setting, for example --config.decoding.beam_width=5; transformer-jax config lists them all"

Values = absl.flags.FlagValues
Flag = Callable[[Values], object]
"""Defines one flag, or several, on the values of a command."""


class Command(NamedTuple):
    """A command: ``run`` takes the values of its flags and returns the exit status; its docstring is the help."""

    run: Callable[[Values], int]
    flags: tuple[Flag, ...]


def command(*flags: Flag) -> Callable[[Callable[[Values], int]], Command]:
    """Decorator: makes a function a command with these flags."""
    return lambda run: Command(run, flags)


def _flag(define: Callable[..., Any]) -> Callable[..., Flag]:
    """A function ``(name, default, help, **options)`` that makes a ``Flag``, from one of absl's that define a flag."""
    return lambda *arguments, **options: lambda values: define(*arguments, flag_values=values, **options)


string = _flag(absl.flags.DEFINE_string)
integer = _flag(absl.flags.DEFINE_integer)
number = _flag(absl.flags.DEFINE_float)
boolean = _flag(absl.flags.DEFINE_boolean)
enum = _flag(absl.flags.DEFINE_enum)
strings = _flag(absl.flags.DEFINE_list)
"""Separated by commas."""
repeated = _flag(absl.flags.DEFINE_multi_string)


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


class Action(NamedTuple):
    """An action of a command, such as ``ls`` of ``checkpoint``: its function, its arguments and their numbers, its flags."""

    do: Callable[[Values, list[str]], None]
    takes: str
    min_arguments: int
    max_arguments: int
    flags: tuple[str, ...]


def chosen_action(
    command: str, actions: Mapping[str, Action], values: Values, shared: Sequence[str] = ()
) -> tuple[Action, list[str]]:
    """The action that the first argument names, and its arguments; ``shared``: flags that every action takes.

    Raises ConfigError at an unknown action, a wrong number of arguments, or a flag of another action.
    """
    name, *given = values.arguments or [""]
    if name not in actions:
        near = nearest(name, actions, cutoff=0.5)
        hint = f"did you mean {near}?" if near else f"give one of {', '.join(actions)}"
        raise ConfigError(f"{command}: {name!r} is not an action; {hint}")
    action = actions[name]
    if not action.min_arguments <= len(given) <= action.max_arguments:
        raise ConfigError(f"{command} {name}: takes {action.takes}, found {' '.join(given) or 'none'}")
    of_others = {flag for other in actions.values() for flag in other.flags} - set(action.flags)
    for flag in sorted(of_others):
        if values[flag].present:
            takes = ", ".join(f"--{each}" for each in (*shared, *action.flags)) or "no flags"
            raise ConfigError(f"--{flag}: {command} {name} does not take it; it takes {takes}")
    return action, given


def overrides_of(values: Values) -> list[tuple[str, str]]:
    """The overrides of the command line, ``[("decoding.beam_width", "5"), ...]``; ``mesh=data=2,fsdp=4`` gives two."""
    items = (item.partition("=") for item in values.config_override)
    return joined_files([setting for key, _, text in items for setting in spelled_out(key, text)])


def resolve_config(values: Values, base: ExperimentConfig | None = None) -> ExperimentConfig:
    """The settings of the recipe (or ``base``, the settings of a run) with the overrides; raises ConfigError at mistakes."""
    if base is not None:
        return from_dict(apply_overrides(to_dict(base), overrides_of(values)))
    return resolve(required_config(values), overrides_of(values))


def required_config(values: Values) -> str:
    """The recipe of --config; raises ConfigError when it is empty."""
    if not values.config:
        raise ConfigError("--config: give a recipe (transformer-jax recipes lists them), or the directory of a run")
    return str(values.config)


def parse(flags: Sequence[Flag], arguments: Sequence[str]) -> Values:
    """The values of the flags of a command, from its arguments; loads the plugins of --plugin.

    Raises ConfigError at an unknown flag, a bad value, a missing flag (or first a missing recipe), an extra argument, or one
    that is not UTF-8.
    """
    for argument in arguments:
        # Python decodes an invalid byte as half of a surrogate pair, which no file of a run could hold.
        if not is_unicode(argument):
            name, equals, text = argument.partition("=")
            where = f"{name}: {text!a}" if equals and is_unicode(name) else ascii(argument)
            raise ConfigError(f"{where} is not valid UTF-8; write or rename it in UTF-8")
    values = Values()
    for define in (*flags, common):
        define(values)
    try:
        rest = values(["transformer-jax", *_rewritten(arguments, values)])
    except absl.flags.UnrecognizedFlagError as error:
        near = nearest(error.flagname, set(values) - {OVERRIDE_FLAG, ARGUMENTS_FLAG})
        hint = f"; did you mean --{near}?" if near else "; --help lists the flags"
        raise ConfigError(f"--{error.flagname}: unknown flag{hint}") from None
    except absl.flags.Error as error:
        missing = [
            name for name in values if values[name].value is None and f"--{name} must have a value" in str(error)
        ]
        if missing and CONFIG_FLAG in values and values[CONFIG_FLAG].value:
            source = str(values[CONFIG_FLAG].value)
            if not is_run_directory(source):
                find_recipe(source.partition(":")[0])
        problem = f"--{missing[0]}: is required; --help shows an example" if missing else str(error)
        if problem.startswith("Missing value for flag "):
            name = problem.removeprefix("Missing value for flag ")
            problem = f"{name}: a value is missing; write {name}=VALUE, {values[name.lstrip('-')].help}"
        raise ConfigError(problem.removeprefix("flag ")) from None
    if values[TRUST_FLAG].present:
        os.environ["TRANSFORMER_JAX_TRUST_CONFIG"] = "1" if values[TRUST_FLAG].value else "0"
    for plugin in values[PLUGIN_FLAG].value or []:
        load_plugin(plugin)
    if ARGUMENTS_FLAG in values:
        values[ARGUMENTS_FLAG].value = rest[1:]
    elif len(rest) > 1:
        hint = f"; to join runs write --ensemble={rest[1]}" if "ensemble" in values else ""
        raise ConfigError(f"unexpected argument {rest[1]!r}; flags are written --name=value{hint}")
    return values


def takes_run(values: Values) -> bool:
    """Whether the first argument that is not a flag is the folder of the run."""
    return WORKDIR_FLAG in values and ARGUMENTS_FLAG not in values


def _rewritten(arguments: Sequence[str], values: Values) -> Iterator[str]:
    """The arguments in absl's syntax.

    ``--config.KEY=VALUE`` and ``--config.KEY VALUE`` become values of one flag. ``--n-best`` becomes ``--n_best``,
    ``--no_verify`` becomes ``--noverify``. The first argument that is not a flag becomes ``--workdir``, unless that is given.
    ``--references A B`` becomes ``--references=A --references=B``. Arguments after ``--`` stay.
    """
    remaining = iter(arguments)
    has_run = any(argument.partition("=")[0] == f"--{WORKDIR_FLAG}" for argument in arguments)
    is_value, awaits_run, repeated = False, takes_run(values) and not has_run, ""
    for argument in remaining:
        if argument == SEPARATOR:
            yield argument
            yield from remaining
            return
        if is_value or not argument.startswith("-"):
            flag = "" if is_value else WORKDIR_FLAG if awaits_run else repeated
            yield f"--{flag}={argument}" if flag else argument
            awaits_run, is_value = awaits_run and is_value, False
            continue
        name, equals, text = argument.partition("=")
        if name.startswith("--config."):
            repeated = ""
            if OVERRIDE_FLAG not in values:
                raise ConfigError(f"{name}: this command takes no settings; --help lists its flags")
            value = text if equals else next(remaining, "--")
            if not equals and value.startswith("--"):
                raise ConfigError(f"{name}: a value is missing; write {name}=VALUE")
            yield f"--{OVERRIDE_FLAG}={name.removeprefix('--config.')}={value}"
            continue
        flag = name.lstrip("-").replace("-", "_")
        if flag.startswith("no_") and flag[3:] in values and values[flag[3:]].boolean:
            argument = f"--no{flag[3:]}"
        is_value = not equals and flag in values and not values[flag].boolean
        takes_several = flag in values and isinstance(values[flag], absl.flags.MultiFlag) and flag != PLUGIN_FLAG
        repeated = flag if takes_several else ""
        yield f"--{flag}{equals}{text}" if flag in values else argument


def names_addresses(name: str, values: Values) -> bool:
    """Whether a run that a command uses is in an object store, and must be there before the command begins."""
    given = [texts_of(values[flag].value) for flag in RUN_FLAGS if flag in values]
    return name not in AS_GIVEN and any(is_address(text) for texts in given for text in texts)


def texts_of(value: Any) -> list[str]:
    return [] if value is None else [value] if type(value) is str else list(value)


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
