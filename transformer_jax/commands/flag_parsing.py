"""Flags of a command: absl's, on separate FlagValues, with ``--config=RECIPE`` and ``--config.KEY=VALUE`` among them.

The convention is that of ``ml_collections.config_flags``. Its own parser is not used, because it can override only what the
recipe happens to state, and ends in a traceback for a misspelled key.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence

from absl import flags

from transformer_jax.config import ConfigError, ExperimentConfig, apply_overrides, from_dict, resolve, to_dict
from transformer_jax.config.conversion import joined_files, spelled_out, type_of
from transformer_jax.config.errors import nearest
from transformer_jax.config.plugins import load_plugin

CONFIG_FLAG = "config"
# Where --config.KEY=VALUE is kept as KEY=VALUE, in the order of the command line.
OVERRIDE_FLAG = "config_override"
PLUGIN_FLAG = "plugin"
TRUST_FLAG = "trust_config"
# Where the arguments that are not flags are kept.
ARGUMENTS_FLAG = "arguments"
# The flag that an argument without a name stands for.
WORKDIR_FLAG = "workdir"
# Arguments after it are not flags of this command.
SEPARATOR = "--"
# Former names of flags, accepted for one release.
FORMER_FLAGS: dict[str, str] = {}
OVERRIDE_MEANING = "set one setting, for example --config.decoding.beam_width=5; transformer-jax config lists them all"


def define_config_flag(values: flags.FlagValues, required: bool = True) -> None:
    """Lets the command take ``--config=RECIPE[:ARGUMENT]`` and ``--config.KEY=VALUE``; see ``resolve_config``."""
    meaning = "a recipe, for example multi30k:tiny or mine.py, or the directory of a run"
    flags.DEFINE_string(CONFIG_FLAG, None, meaning, flag_values=values, required=required)
    define_override_flag(values)


def define_override_flag(values: flags.FlagValues) -> None:
    """Lets the command take ``--config.KEY=VALUE`` alone, for settings that change those of a run."""
    flags.DEFINE_multi_string(OVERRIDE_FLAG, [], OVERRIDE_MEANING, flag_values=values)


def define_common_flags(values: flags.FlagValues) -> None:
    """Lets the command take ``--plugin=FILE`` and ``--trust_config``, as every command does."""
    meaning = "Python file that registers attentions, data sources, trackers ...; see docs/extending.md"
    flags.DEFINE_multi_string(PLUGIN_FLAG, [], meaning, flag_values=values)
    meaning = "use config.json of a run though it differs from the settings in its checkpoints"
    flags.DEFINE_boolean(TRUST_FLAG, False, meaning, flag_values=values)


def define_arguments(values: flags.FlagValues, name: str, meaning: str) -> None:
    """Lets the command take arguments that are not flags, as ``values.arguments``; help calls them ``name``: ``RUN ...``."""
    flags.DEFINE_multi_string(ARGUMENTS_FLAG, [], f"{name}: {meaning}", flag_values=values)


def define_distributed_flag(values: flags.FlagValues) -> None:
    """Lets the command be one of several processes with ``--distributed``."""
    meaning = "this is one of several processes that run the same command, as on the hosts of a cluster"
    flags.DEFINE_boolean("distributed", False, meaning, flag_values=values)


def overrides_of(values: flags.FlagValues) -> list[tuple[str, str]]:
    """The overrides of the command line, ``[("decoding.beam_width", "5"), ...]``; of ``mesh=data=2,fsdp=4`` each."""
    items = (item.partition("=") for item in values.config_override)
    return joined_files([setting for key, _, text in items for setting in spelled_out(key, text)])


def resolve_config(values: flags.FlagValues, base: ExperimentConfig | None = None) -> ExperimentConfig:
    """The settings that the flags state: the recipe (or ``base``, the settings of a run) with the overrides applied.

    Raises:
        ConfigError: whatever is wrong with the recipe, its settings or the overrides.
    """
    if base is not None:
        return from_dict(apply_overrides(to_dict(base), overrides_of(values)))
    return resolve(required_config(values), overrides_of(values))


def required_config(values: flags.FlagValues) -> str:
    """What --config names; raises ConfigError when it is empty."""
    if not values.config:
        raise ConfigError(
            "--config: give a recipe, for example quickstart (transformer-jax recipes lists them), or the directory of a run"
        )
    return str(values.config)


def parse_flags(define_flags: Callable[[flags.FlagValues], None], arguments: Sequence[str]) -> flags.FlagValues:
    """The values of a command's flags, read from its arguments (without the command's name).

    Raises:
        ConfigError: an unknown flag, a value that does not fit, a required flag left out, or a stray argument.
    """
    values = flags.FlagValues()
    define_flags(values)
    define_common_flags(values)
    try:
        rest = values(["transformer-jax", *_rewritten(arguments, values)])
    except flags.UnrecognizedFlagError as error:
        near = nearest(error.flagname, set(values) - {OVERRIDE_FLAG, ARGUMENTS_FLAG})
        hint = f"; did you mean --{near}?" if near else "; --help lists the flags"
        raise ConfigError(f"--{error.flagname}: unknown flag{hint}") from None
    except flags.Error as error:
        missing = [
            name for name in values if values[name].value is None and f"--{name} must have a value" in str(error)
        ]
        problem = f"--{missing[0]}: is required; --help shows an example" if missing else str(error)
        raise ConfigError(problem.removeprefix("flag ")) from None
    if values[TRUST_FLAG].value:
        os.environ["TRANSFORMER_JAX_TRUST_CONFIG"] = "1"
    for plugin in values[PLUGIN_FLAG].value or []:
        load_plugin(plugin)
    if ARGUMENTS_FLAG in values:
        values[ARGUMENTS_FLAG].value = rest[1:]
    elif len(rest) > 1:
        raise ConfigError(f"unexpected argument {rest[1]!r}; flags are written --name=value")
    return values


def _rewritten(arguments: Sequence[str], values: flags.FlagValues) -> Iterator[str]:
    """The arguments as absl knows them.

    ``--config.KEY=VALUE``, ``--config.KEY VALUE`` and ``--[no]config.KEY`` become one flag that collects them, and
    ``--n-best`` is another way to write ``--n_best``. The first argument that is no flag is the run unless --workdir is given;
    ``--references A B`` gives a flag that may be repeated several values. What follows ``--`` is kept unchanged.
    """
    remaining = iter(arguments)
    has_run = any(argument.partition("=")[0] == f"--{WORKDIR_FLAG}" for argument in arguments)
    is_value, takes_run = False, WORKDIR_FLAG in values and ARGUMENTS_FLAG not in values and not has_run
    repeated = ""
    for argument in remaining:
        if argument == SEPARATOR:
            yield argument
            yield from remaining
            return
        if is_value or not argument.startswith("-"):
            flag = "" if is_value else WORKDIR_FLAG if takes_run else repeated
            yield f"--{flag}={argument}" if flag else argument
            takes_run, is_value = takes_run and is_value, False
            continue
        name, equals, text = argument.partition("=")
        dashless = name.removeprefix("-").removeprefix("-")
        negated = dashless.startswith("noconfig.")
        if not name.startswith("-") or not (negated or dashless.startswith("config.")):
            flag = _current_flag(dashless.replace("-", "_"), values)
            is_value = not equals and flag in values and not values[flag].boolean
            repeated = flag if flag in values and isinstance(values[flag], flags.MultiFlag) else ""
            yield f"--{flag}{equals}{text}" if name.startswith("--") and flag in values else argument
            continue
        key, repeated = dashless.partition(".")[2], ""
        if OVERRIDE_FLAG not in values:
            raise ConfigError(f"{name}: this command takes no settings; --help lists its flags")
        if negated and (equals or type_of(key) is not bool):
            raise ConfigError(
                f"{name}: only a setting that is True or False can be negated; write --config.{key}=VALUE"
            )
        if not equals:
            text = _value_of_bare(name, key, negated, remaining)
        yield f"--{OVERRIDE_FLAG}={key}={text}"


def _current_flag(flag: str, values: flags.FlagValues) -> str:
    """The name of a flag; for a former one a warning goes to stderr."""
    new = FORMER_FLAGS.get(flag, flag)
    if new == flag or new not in values:
        return flag
    print(f"transformer-jax: --{flag} is now --{new}; the next release no longer accepts the old name", file=sys.stderr)
    return new


def _value_of_bare(name: str, key: str, negated: bool, remaining: Iterator[str]) -> str:
    """The value of a setting given without ``=``: true or false for a bool, else the argument that follows."""
    if type_of(key) is bool:
        return str(not negated)
    text = next(remaining, None)
    if text is None:
        raise ConfigError(f"{name}: a value is missing; write {name}=VALUE")
    return text
