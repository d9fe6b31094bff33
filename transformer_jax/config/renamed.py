"""Settings of earlier versions: renamed ones, accepted for one release and in runs for good, and removed ones."""

import warnings
from typing import Any

from ml_collections import ConfigDict

from transformer_jax.config.errors import ConfigError

# Raised when a key is renamed or its meaning changes. A new key needs no new version, when its default is the old behavior.
SCHEMA_VERSION = 3

RENAMED: dict[int, dict[str, str]] = {
    1: {"model.rematerialise": "model.rematerialize"},
    2: {"data.file": "data.train"},
}
"""By the last schema version that had them: the old keys, and what the next version calls them."""

DEPRECATED = {old: new for renamed in RENAMED.values() for old, new in renamed.items()}
"""The old keys that are still accepted with a warning."""

REMOVED: dict[str, object] = {"decoding.shortlist": ""}
"""Settings that are gone, with the value that stands for what is done without them."""


def migrated(values: dict[str, Any], version: int) -> dict[str, Any]:
    """Settings of schema ``version``, as nested dictionaries, under the keys of today; removed ones are left out."""
    for old_version in range(version, SCHEMA_VERSION):
        for old, new in RENAMED[old_version].items():
            block, _, name = old.partition(".")
            if isinstance(values.get(block), dict) and name in values[block]:
                fields = {new.partition(".")[2] if key == name else key: value for key, value in values[block].items()}
                values = {**values, block: fields}
    return without_removed(values)


def without_removed(values: dict[str, Any]) -> dict[str, Any]:
    """Saved settings, as nested dictionaries, without those that are gone; warns where one had an effect."""
    for key, unused in REMOVED.items():
        block, _, name = key.partition(".")
        if isinstance(values.get(block), dict) and name in values[block]:
            if values[block][name] != unused:
                warnings.warn(f"{key}={values[block][name]} is ignored: the setting was removed", stacklevel=3)
            values = {**values, block: {field: value for field, value in values[block].items() if field != name}}
    return values


def current_key(key: str, *, warn: bool = False) -> str:
    """The name of today for a key that may be an old one."""
    new = DEPRECATED.get(key, key)
    if warn and new != key:
        _warn(key, new)
    return new


def rename_deprecated(config: ConfigDict) -> None:
    """Puts what a recipe states under an old key under the new one, references included; the recipe must be unlocked.

    Raises:
        ConfigError: it states both.
    """
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
