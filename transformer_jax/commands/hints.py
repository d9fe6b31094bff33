"""Errors for arguments that are not flags of a command, with the flags that they may mean."""

import re
from collections.abc import Collection
from pathlib import Path

from transformer_jax.config import ConfigError
from transformer_jax.config.conversion import (
    BOOLEANS,
    block_at,
    either,
    leaf_keys,
    other_toolkits,
    settings_called,
    similar_settings,
)
from transformer_jax.errors import nearest


def check_word(word: str, here: Collection[str], *, boolean_before: str, takes_settings: bool) -> None:
    """Raise ConfigError for a word that is no folder of a run but may mean a flag ``here``."""
    name, equals, _ = word.partition("=")
    name = name.removeprefix("config.")
    if boolean_before and word.lower() in BOOLEANS:
        raise ConfigError(word, "is not a flag", f"write --{boolean_before}={word}")
    if word == "-":
        raise ConfigError(word, "is not the folder of a run")
    if equals and not name:
        raise ConfigError(word, "no spaces around =", "flags are written --name=value")
    if equals and name in here:
        raise ConfigError(word, "is not a flag", f"did you mean --{word}?")
    if not equals or not takes_settings:
        return
    if re.fullmatch(r"[a-z]\w*(\.\w+)+", name) or settings_called(name) or block_at(name):
        folder = f" A folder of this name is --workdir={word}" if Path(word).is_dir() else ""
        raise ConfigError(word, "is not a flag", f"did you mean --config.{word.removeprefix('config.')}?{folder}")


def unknown_flag(written: str, here: Collection[str], *, usage: str, takes_settings: bool) -> ConfigError:
    """Return the error for an unknown flag of a command with flags ``here``."""
    name = written.lstrip("-").replace("-", "_")
    if name == "config":
        takes = "write --config.KEY=VALUE" if takes_settings else "--help lists the flags"
        return ConfigError(written, "this command takes no recipe", takes)
    if name == "workdir" and "RUN" in usage:
        return ConfigError(written, "the run is an argument of this command", f"write {usage}")
    if advice := other_toolkits("advice").get(name):
        return ConfigError(written, "unknown flag", " ".join(advice))
    meant = _meant(name, here, sets=takes_settings)
    return ConfigError(written, "unknown flag", f"did you mean {either(meant)}?" if meant else "--help lists the flags")


def _meant(name: str, here: Collection[str], *, sets: bool) -> list[str]:
    """Return the flags ``here``, or --config.KEY, that an unknown flag may mean."""
    # A command on a trained run changes no training.
    trains, used = "config" in here, ("decoding.", "mesh.", "evaluation.")
    synonyms = other_toolkits("flags").get(name, [])
    settings = [flag for flag in synonyms if sets and trains and flag.startswith("config.")]
    if meant := settings or [flag for flag in synonyms if flag in here]:
        return [f"--{flag}" for flag in meant]
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
