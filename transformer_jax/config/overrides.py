"""Settings given as text on the command line, ``--config.model.d_ff=512``, read by the type of the setting."""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import RequiredValueError

from transformer_jax.config.conversion import EXPECTED
from transformer_jax.config.errors import ConfigError
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.keys import fields_of, is_block, join_key, type_of
from transformer_jax.config.renamed import current_key, rename_deprecated

# The spellings that absl's boolean flags accept.
TRUE_WORDS = ("true", "t", "yes", "y", "1")
FALSE_WORDS = ("false", "f", "no", "n", "0")
# Settings that name two files.
NAMED_FILES = ("data.train", "data.validation", "data.test")


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
    # Whether types fit is decided by the settings themselves, not by what the recipe happened to state.
    with config.unlocked(), config.ignore_type():
        rename_deprecated(config)
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


def spelled_out(key: str, text: str) -> list[tuple[str, str]]:
    """``("mesh", "data=-1,fsdp=4")`` as ``mesh.data`` and ``mesh.fsdp``; what is no block of settings stays one setting."""
    if not is_block(fields_of(ExperimentConfig).get(key)) or "=" not in text:
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
        return READERS[kind](text)
    except ValueError:
        raise ConfigError(f"{key}: expected {EXPECTED[kind]}, found {text!r}") from None


def _read_bool(text: str) -> bool:
    if text.lower() in TRUE_WORDS:
        return True
    if text.lower() in FALSE_WORDS:
        return False
    raise ValueError(text)


READERS: dict[type, Callable[[str], str | int | float | bool]] = {str: str, int: int, float: float, bool: _read_bool}


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
