"""Settings on disk: the JSON of a run directory, with the version of its schema."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer_jax.config.conversion import difference, from_dict, to_dict
from transformer_jax.config.data import DataConfig
from transformer_jax.config.errors import ConfigError, PluginNeeded
from transformer_jax.config.experiment import ExperimentConfig
from transformer_jax.config.json_text import parse_json
from transformer_jax.config.optimization import MeshConfig
from transformer_jax.config.overrides import apply_overrides
from transformer_jax.config.recipes import load_recipe, with_own_text
from transformer_jax.config.renamed import SCHEMA_VERSION, migrated
from transformer_jax.config.tasks import DEFAULT_TASK

CONFIG_FILE = "config.json"
# Translations of runs of versions without the block were scored so, whatever their language.
_AS_BEFORE = {"evaluation": {"bleu_tokenizer": "13a", "selection": "bleu"}}


def to_json(config: ExperimentConfig) -> dict[str, Any]:
    """The settings as a JSON object: ``{"schema_version": 3, "config": {...}}``."""
    return {"schema_version": SCHEMA_VERSION, "config": to_dict(config)}


def from_json(content: Any) -> ExperimentConfig:
    """The inverse of ``to_json``; settings of earlier schema versions are migrated.

    Raises:
        ConfigError: not such an object, a newer schema version than this code knows, or wrong settings.
    """
    if not isinstance(content, dict) or set(content) != {"schema_version", "config"}:
        raise ConfigError("not the settings of a run: expected an object with schema_version and config")
    version = content["schema_version"]
    if type(version) is not int or version < 1:
        raise ConfigError(f"schema_version: {version!r} is not a version; expected 1 to {SCHEMA_VERSION}")
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"schema_version: {version} was written by a newer version of transformer_jax, this one reads up to "
            f"{SCHEMA_VERSION}; update transformer_jax"
        )
    if not isinstance(content["config"], dict):
        raise ConfigError(f"config: expected a block of settings, found {content['config']!r}")
    values = migrated(content["config"], version)
    is_translation = values.get("task", DEFAULT_TASK) == DEFAULT_TASK
    return from_dict(_AS_BEFORE | values if is_translation else values)


def load_run_config(path: str | Path) -> ExperimentConfig:
    """The settings of a finished or running run, from its directory or its ``config.json``.

    Raises:
        ConfigError: there is no such file, or it is not the settings of a run; the message names the file.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file = file / CONFIG_FILE
        if not file.is_file():
            raise ConfigError(f"{file.parent}: not the directory of a run: it has no {CONFIG_FILE}")
    try:
        return from_json(parse_json(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ConfigError(f"{file}: {reason}; give the directory of a run") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file}, line {error.lineno}: not JSON: {error.msg}") from None
    except PluginNeeded as error:
        raise ConfigError(f"{file}: {error}; run.json beside it names the plugins that it was trained with") from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: not the settings of a run: {error}") from None


def without_its_cache(config: ExperimentConfig) -> ExperimentConfig:
    """The settings of a run with the default cache: compiled programs are code, and another may have written the run."""
    return replace(config, data=replace(config.data, cache_directory=DataConfig.cache_directory))


def on_any_devices(config: ExperimentConfig) -> ExperimentConfig:
    """The settings of a run for using its model with the devices and the cache that are here, not those of its training.

    Nothing is downloaded.
    """
    model = config.model
    if model.has_attention_backend:
        model = replace(model, attention_backend="auto")
    data = without_its_cache(config).data.only_reading()
    return replace(config, mesh=MeshConfig(), model=model, data=data)


PLACES_OF_DATA = (
    *("directory", "train", "validation", "test", "download", "cache_directory"),
    *("source_language", "target_language"),
)
USABLE = ("decoding.", "mesh.", "evaluation.metrics", "evaluation.bleu_tokenizer")


def config_for_use(path: str | Path, overrides: Iterable[tuple[str, str]] = ()) -> ExperimentConfig:
    """The settings with which the model of a run is used: its own, on any devices, with overrides applied.

    Raises:
        ConfigError: it is no run, or an override is not one of decoding, of scores, of devices or of where the data lies.
    """
    saved = on_any_devices(load_run_config(path))
    config = from_dict(apply_overrides(to_dict(saved), overrides))
    for key, before, _ in difference(saved, config):
        block, _, name = key.partition(".")
        if not (key.startswith(USABLE) or (block == "data" and name in PLACES_OF_DATA)):
            scores = ", ".join(USABLE[2:])
            places = ", ".join(f"data.{place}" for place in PLACES_OF_DATA)
            raise ConfigError(
                f"--config.{key}: the trained model has {before!r}; only decoding, mesh, {places}, {scores} can change"
            )
    return config


def resolve(source: str, overrides: Iterable[tuple[str, str]] = ()) -> ExperimentConfig:
    """The settings of a recipe (``configs/multi30k.py:tiny``) or of a run directory, with overrides applied.

    Of a run directory without its cache, and with its addresses marked as not asked for.

    Raises:
        ConfigError: whatever is wrong with the recipe, its settings or the overrides.
    """
    overrides = list(overrides)
    return from_dict(apply_overrides(stated_settings(source, overrides), overrides))


def stated_settings(source: str, overrides: Iterable[tuple[str, str]] = ()) -> ConfigDict:
    """The settings that a recipe states, or all of those of a run directory; raises ConfigError as ``resolve`` does.

    ``overrides`` are not applied: of a recipe without a variant they may choose one.
    """
    if is_run_directory(source):
        saved = without_its_cache(load_run_config(source))
        return ConfigDict(to_dict(replace(saved, data=saved.data.of_a_run(), init=saved.init.of_a_run())))
    return load_recipe(with_own_text(source, overrides))


def is_run_directory(source: str) -> bool:
    """Whether ``--config`` names a run, or its ``config.json``, rather than a recipe."""
    return Path(source).expanduser().is_dir() or source.endswith(".json")
