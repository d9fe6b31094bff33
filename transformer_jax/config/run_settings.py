"""The settings of recipes and runs, and those that may change when a run is used."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_jax.config.checks import declared
from transformer_jax.config.conversion import apply_overrides, difference, from_dict, from_json, to_dict
from transformer_jax.config.data import SourceConfig
from transformer_jax.config.experiment import PARTS, ExperimentConfig, selecting
from transformer_jax.config.optimization import MeshConfig
from transformer_jax.config.recipes import find_recipe, load_recipe, with_own_text
from transformer_jax.errors import ConfigError, PluginNeeded, StoreError
from transformer_jax.files.checked_json import CRC, read_regular
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.paths import as_path, in_store, unasked
from transformer_jax.registry.plugins import kind_with_settings, setting_of
from transformer_jax.registry.python_files import loaded_plugins, names_in_file

if TYPE_CHECKING:
    from ml_collections import ConfigDict

CONFIG_FILE = "config.json"


def resolve(
    source: str, overrides: Iterable[tuple[str, str]] = (), changes: Mapping[str, str] | None = None
) -> ExperimentConfig:
    """Return the settings of a recipe (``configs/multi30k.py:tiny``) or of a run directory.

    ``overrides`` are applied, then ``changes``: if these select another part, the settings of the
    replaced one are left out. A run directory is untrusted: its cache is replaced by the default,
    and an address in ``init.run`` is marked as not to be opened. Raises ConfigError for any fault
    in the recipe, its settings or the overrides.
    """
    changes = changes or {}
    overrides = [*overrides, *changes.items()]
    values = apply_overrides(stated_settings(source, overrides), overrides)
    if changes and PARTS in values:
        selected = with_selected_parts(values, ())[PARTS]
        kinds = {name: kind_with_settings(name) for name in values[PARTS]}
        replaced = {name for name, kind in kinds.items() if kind and setting_of(kind) in changes}
        replaced -= {key.split(".")[1] for key in changes if key.startswith(f"{PARTS}.")}
        values[PARTS] = {name: part for name, part in values[PARTS].items() if name in selected or name not in replaced}
    return from_dict(values)


def stated_settings(source: str, overrides: Iterable[tuple[str, str]] = ()) -> "dict[str, Any] | ConfigDict":
    """Return the settings that a recipe sets, or all settings of a run directory.

    ``overrides`` are not applied, but may select the variant of a recipe (see ``with_own_text``).
    Raises ConfigError as ``resolve`` does.
    """
    if is_run_directory(source):
        saved = without_its_cache(load_run_config(source))
        return with_selected_parts(to_dict(replace(saved, init=saved.init.of_a_run())), overrides)
    return load_recipe(with_own_text(source, overrides))


def with_selected_parts(values: dict[str, Any], overrides: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the settings of a run without parts that ``overrides`` replace."""
    if PARTS not in values:
        return values
    others = {name: block for name, block in values.items() if name != PARTS}
    changes = [(key, text) for key, text in overrides if not key.startswith(f"{PARTS}.")]
    selected = from_dict(apply_overrides(others, changes)).parts
    return others | {PARTS: {name: settings for name, settings in values[PARTS].items() if name in selected}}


def is_run_directory(source: str) -> bool:
    """Return whether ``--config`` names a run directory, or its ``config.json``, not a recipe.

    A folder with a bare name, ``text``, is a run only if it has a ``config.json``.
    """
    path = as_path(source)
    if in_store(path):
        return True
    if path.is_dir() and path == Path(path.name):
        return (path / CONFIG_FILE).is_file()
    return path.is_dir() or source.endswith(".json")


def load_run_config(path: str | Path) -> ExperimentConfig:
    """Return the settings of a run, from its directory or its ``config.json``.

    Raises ConfigError, with the file, when it is missing or does not hold the settings of a run.
    """
    file = as_path(path)
    if file.suffix != ".json" if in_store(file) else file.is_dir():
        file = file / CONFIG_FILE
    try:
        content = parse_json(read_regular(file).decode())
        if isinstance(content, dict):
            # Settings may be edited: ``require_settings`` says so.
            content.pop(CRC, None)
        return from_json(content)
    except StoreError:
        raise
    except FileNotFoundError as error:
        if file.name == CONFIG_FILE:
            raise ConfigError(f"{file.parent}", f"not the directory of a run: it has no {CONFIG_FILE}") from None
        raise ConfigError(f"{file}", f"not the settings of a run: {error.strerror}") from None
    except PluginNeeded as error:
        raise ConfigError(str(file), f"{error}{_missing_plugins(file.with_name('run.json'))}") from None
    except ConfigError as error:
        raise ConfigError(str(file), str(error)) from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ConfigError(str(file), f"not the settings of a run: {problem}") from None


def _missing_plugins(starts: Path) -> str:
    """Return flags of plugins that the run loaded and this process did not."""
    try:
        files = list(parse_json(starts.read_text(encoding="utf-8"))[-1]["plugins"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    loaded = {Path(file).name for file in loaded_plugins()}
    missing = [f"--plugin={shlex.quote(file)}" for file in files if Path(file).name not in loaded]
    kept = starts.with_name("plugins")
    text = f" (their text is in {kept})" if missing and kept.is_dir() else ""
    return f"; the run had {' '.join(missing)}{text}" if missing else ""


def without_its_cache(config: ExperimentConfig) -> ExperimentConfig:
    """Return the settings of a run with the default cache, and without opening its store.

    The cache of an untrusted run may hold compiled programs of somebody else.
    """
    data = replace(config.data, cache_directory=SourceConfig.cache_directory, store=unasked(config.data.store))
    return replace(config, data=data)


def on_any_devices(config: ExperimentConfig) -> ExperimentConfig:
    """Return the settings of a run for these devices, with the default cache and no downloads."""
    model, data = config.model, config.data
    if model.has_attention_backend:
        model = replace(model, attention_backend="auto")
    data = replace(data.only_reading(), cache_directory=SourceConfig.cache_directory, store=unasked(data.store))
    return replace(config, mesh=MeshConfig(), model=model, data=data)


USABLE = ("decoding.", "mesh.", "evaluation.metrics", "evaluation.bleu_tokenizer")


def config_for_use(path: str | Path, overrides: Iterable[tuple[str, str]] = ()) -> ExperimentConfig:
    """Return the settings of a run for using its model on any devices, with overrides applied.

    Raises ConfigError when there is no run, or an override is not a setting of decoding, scores,
    devices or data location.
    """
    return used_settings(load_run_config(path), overrides)


def used_settings(trained: ExperimentConfig, overrides: Iterable[tuple[str, str]]) -> ExperimentConfig:
    """Return the settings of a run as ``config_for_use`` does, from its saved settings."""
    saved, overrides = on_any_devices(trained), list(overrides)
    if not overrides:
        return saved
    config = from_dict(apply_overrides(with_selected_parts(to_dict(saved), overrides), overrides))
    fields = declared(type(saved.data)).items()
    data = [f"data.{name}" for name, field in fields if field.facts.get("changeable")]
    for key, before, _ in difference(saved, config):
        if not any(name.startswith(USABLE) or name in data for name in selecting(key, saved, config)):
            usable = ", ".join((*data, *USABLE[2:]))
            raise ConfigError(f"--config.{key}", f"the run has {before!r}", f"only decoding, mesh, {usable} can change")
    return config


def budget_of(source: str, overrides: Sequence[tuple[str, str]]) -> str | None:
    """Return the ``BUDGET`` of a recipe, for all variants or by variant, or None."""
    if is_run_directory(source):
        return None
    recipe, _, variant = with_own_text(source, overrides).partition(":")
    budget = names_in_file(find_recipe(recipe)).get("BUDGET")
    budget = budget.get(variant) if isinstance(budget, Mapping) else budget
    return None if budget is None else str(budget)
