"""Sources of settings: recipes and run directories.

A recipe is a Python file with ``get_config([argument]) -> ml_collections.ConfigDict``, named ``path.py[:argument]``. Recipes of
the package need neither folder nor suffix: ``multi30k:tiny``. A recipe may import its sibling recipes (``import
transformer_base``). It may also define:

- ``VARIANTS``: all arguments; a misspelled one is reported with the nearest;
- ``MEASURED``: hardware, time and score of a run, by argument;
- ``BUDGET``: the default of ``--budget``;
- ``OWN_TEXT``: the default variant if the command names text files.
"""

import inspect
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer_jax.config.checks import declared, unasked
from transformer_jax.config.conversion import PARTS, apply_overrides, difference, from_dict, from_json, to_dict
from transformer_jax.config.data import DataConfig
from transformer_jax.config.errors import ConfigError, PluginNeeded, StoreError, nearest
from transformer_jax.config.experiment import ExperimentConfig, selecting
from transformer_jax.config.json_text import parse_json
from transformer_jax.config.optimization import MeshConfig
from transformer_jax.config.paths import as_path, in_store
from transformer_jax.config.plugins import call_in_file, kind_with_settings, loaded_plugins, names_in_file, setting_of

CONFIG_FILE = "config.json"
SOURCE_TREE = Path(__file__).resolve().parents[2]
# A checkout has the recipes in configs/, an installed wheel in transformer_jax/recipes/.
SHIPPED = SOURCE_TREE / ("configs" if (SOURCE_TREE / "pyproject.toml").is_file() else "transformer_jax/recipes")


class ListedVariant(NamedTuple):
    """A variant of a recipe, as ``--config`` names it; ``measured``: hardware, time and score of its run, if any."""

    spec: str
    summary: str
    measured: tuple[str, ...]


class ListedRecipe(NamedTuple):
    """A recipe of the package: the first line of its docstring, and its variants."""

    name: str
    summary: str
    variants: tuple[ListedVariant, ...]


def resolve(
    source: str, overrides: Iterable[tuple[str, str]] = (), changes: Mapping[str, str] | None = None
) -> ExperimentConfig:
    """The settings of a recipe (``configs/multi30k.py:tiny``) or of a run directory, with overrides applied.

    A run directory is untrusted: its cache is replaced by the default, and an address in ``init.run`` is marked as not to be
    opened. Raises ConfigError for any fault in the recipe, its settings or the overrides. ``changes``: overrides after these;
    where they select another part, the settings of the replaced one are left out.
    """
    changes = changes or {}
    overrides = [*overrides, *changes.items()]
    values = apply_overrides(stated_settings(source, overrides), overrides)
    if changes and PARTS in values:
        values[PARTS] = _without_replaced(values, changes)
    return from_dict(values)


def _without_replaced(values: dict[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    selected = with_selected_parts(values, ())[PARTS]
    own = {key.split(".")[1] for key in changes if key.startswith(f"{PARTS}.")}
    kinds = {name: kind_with_settings(name) for name in values[PARTS]}
    replaced = {name for name, kind in kinds.items() if kind and setting_of(kind) in changes} - own
    return {name: each for name, each in values[PARTS].items() if name in selected or name not in replaced}


def stated_settings(source: str, overrides: Iterable[tuple[str, str]] = ()) -> ConfigDict:
    """The settings that a recipe sets, or all settings of a run directory; raises ConfigError as ``resolve`` does.

    ``overrides`` are not applied, but may choose the variant of a recipe (see ``with_own_text``).
    """
    if is_run_directory(source):
        saved = without_its_cache(load_run_config(source))
        values = to_dict(replace(saved, init=saved.init.of_a_run()))
        return ConfigDict(with_selected_parts(values, overrides))
    return load_recipe(with_own_text(source, overrides))


def with_selected_parts(values: dict[str, Any], overrides: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The settings of a run without parts that it no longer selects after ``overrides``."""
    if PARTS not in values:
        return values
    others = {name: block for name, block in values.items() if name != PARTS}
    changes = [(key, text) for key, text in overrides if not key.startswith(f"{PARTS}.")]
    selected = from_dict(apply_overrides(others, changes)).parts
    return others | {PARTS: {name: settings for name, settings in values[PARTS].items() if name in selected}}


def is_run_directory(source: str) -> bool:
    """Whether ``--config`` names a run directory, or its ``config.json``, not a recipe.

    A folder with a bare name, ``text``, is a run only if it has a ``config.json``, since it may be a folder of data.
    """
    path = as_path(source)
    if in_store(path):
        return True
    if path.is_dir() and path == Path(path.name):
        return (path / CONFIG_FILE).is_file()
    return path.is_dir() or source.endswith(".json")


def require_recipe(source: str) -> None:
    """Raises ConfigError when ``--config`` names neither a run nor a recipe."""
    if not is_run_directory(source):
        find_recipe(source.partition(":")[0])


def load_recipe(spec: str) -> ConfigDict:
    """The settings of a recipe, such as ``multi30k:tiny`` or ``mine.py``, for ``apply_overrides``.

    Raises ConfigError when there is no such file, the recipe fails, does not know the argument, or returns something else.
    """
    name, _, argument = spec.partition(":")
    path = find_recipe(name)
    config = call_in_file(path, "get_config", argument, "a recipe")
    if isinstance(config, dict):
        return ConfigDict(config)
    if not isinstance(config, ConfigDict):
        raise ConfigError(f"{path}: get_config() must return an ml_collections.ConfigDict, not {type(config).__name__}")
    return config


def with_own_text(spec: str, overrides: Iterable[tuple[str, str]]) -> str:
    """Adds the variant ``OWN_TEXT`` if ``overrides`` name text files: ``language_model`` becomes ``language_model:text``."""
    if ":" in spec or not {key for key, _ in overrides} & {"data.train", "data.directory"}:
        return spec
    variant = names_in_file(find_recipe(spec)).get("OWN_TEXT")
    return f"{spec}:{variant}" if variant else spec


def find_recipe(name: str) -> Path:
    """The file of a recipe: as given, in ``./configs/``, or in the package; ``.py`` and ``configs/`` are optional.

    A bare name, ``text``, is searched in the current folder last, so that an unrelated ``text.py`` does not run instead.

    Raises ConfigError, with the files that were tried, if there is none.
    """
    given = Path(name).expanduser()
    file = given if given.suffix == ".py" else given.with_name(given.name + ".py") if given.name else given
    files = [file]
    if not file.is_absolute():
        inside = file.relative_to("configs") if file.parts[:1] == ("configs",) else file
        files += [Path("configs") / file, SHIPPED / inside]
    if given == Path(given.name) and given.suffix != ".py":
        files = [*files[1:], file]
    for each in files:
        if each.is_file():
            return each
    files += [given / CONFIG_FILE] if given.is_dir() else []
    tried = ", ".join(dict.fromkeys(str(each) for each in files))
    known = sorted({recipe.stem for folder in (Path("configs"), SHIPPED) for recipe in folder.glob("[!_]*.py")})
    near = nearest(file.stem, known)
    hint = f"; did you mean {near}?" if near else f"; recipes here: {', '.join(known)}" if known else ""
    raise ConfigError(f"config: no recipe {name!r} (looked for {tried}){hint}")


def listed_recipes() -> list[ListedRecipe]:
    recipes = []
    for file in sorted(SHIPPED.glob("[!_]*.py")):
        names = names_in_file(file)
        variants = []
        for variant in names.get("VARIANTS", ("",)):
            described = names.get(variant)
            text = inspect.getdoc(described) if inspect.isfunction(described) else None
            spec = f"{file.stem}:{variant}" if variant else file.stem
            measured = names.get("MEASURED", {}).get(variant, ())
            variants.append(ListedVariant(spec, (text or "").split("\n")[0], measured))
        recipes.append(ListedRecipe(file.stem, names["__doc__"].split("\n")[0], tuple(variants)))
    return recipes


def load_run_config(path: str | Path) -> ExperimentConfig:
    """The settings of a run, from its directory or its ``config.json``.

    Raises ConfigError, with the file, when it does not exist or does not hold the settings of a run.
    """
    file = as_path(path)
    if file.suffix != ".json" if in_store(file) else file.is_dir():
        file = file / CONFIG_FILE
    try:
        return from_json(parse_json(file.read_text(encoding="utf-8")))
    except StoreError:
        raise
    except FileNotFoundError as error:
        if file.name == CONFIG_FILE:
            raise ConfigError(f"{file.parent}: not the directory of a run: it has no {CONFIG_FILE}") from None
        raise ConfigError(f"{file}: not the settings of a run: {error.strerror}") from None
    except PluginNeeded as error:
        raise ConfigError(f"{file}: {error}{_missing_plugins(file.with_name('run.json'))}") from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: not the settings of a run: {getattr(error, 'strerror', None) or error}") from None


def _missing_plugins(starts: Path) -> str:
    """The flags of the plugins that the run loaded at its last start, and this process did not."""
    try:
        files = list(parse_json(starts.read_text(encoding="utf-8"))[-1]["plugins"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    loaded = {Path(file).name for file in loaded_plugins()}
    missing = [f"--plugin={shlex.quote(file)}" for file in files if Path(file).name not in loaded]
    return f"; the run had {' '.join(missing)}" if missing else ""


def without_its_cache(config: ExperimentConfig) -> ExperimentConfig:
    """The settings of a run with the default cache: its own may hold untrusted compiled programs.

    An address of a store is marked as not to be opened.
    """
    data = replace(config.data, cache_directory=DataConfig.cache_directory, store=unasked(config.data.store))
    return replace(config, data=data)


def on_any_devices(config: ExperimentConfig) -> ExperimentConfig:
    """The settings of a run for using its model on these devices, with the default cache and without downloads."""
    model = config.model
    if model.has_attention_backend:
        model = replace(model, attention_backend="auto")
    data = without_its_cache(config).data.only_reading()
    return replace(config, mesh=MeshConfig(), model=model, data=data)


USABLE = ("decoding.", "mesh.", "evaluation.metrics", "evaluation.bleu_tokenizer")


def config_for_use(path: str | Path, overrides: Iterable[tuple[str, str]] = ()) -> ExperimentConfig:
    """The settings of a run for using its model on any devices, with overrides applied.

    Raises ConfigError when there is no run, or an override is not a setting of decoding, scores, devices or data location.
    """
    return used_settings(load_run_config(path), overrides)


def used_settings(trained: ExperimentConfig, overrides: Iterable[tuple[str, str]]) -> ExperimentConfig:
    """``config_for_use`` of a run with the settings ``trained``."""
    saved, overrides = on_any_devices(trained), list(overrides)
    config = from_dict(apply_overrides(with_selected_parts(to_dict(saved), overrides), overrides))
    data = [f"data.{name}" for name, each in declared(type(saved.data)).items() if each.facts.get("changeable")]
    for key, before, _ in difference(saved, config):
        if not any(each.startswith(USABLE) or each in data for each in selecting(key, saved, config)):
            usable = ", ".join((*data, *USABLE[2:]))
            raise ConfigError(f"--config.{key}: the run has {before!r}; only decoding, mesh, {usable} can change")
    return config


def budget_of(source: str, overrides: Sequence[tuple[str, str]]) -> str | None:
    """Return the ``BUDGET`` of a recipe, for all variants or by variant; None without one, and for a run."""
    if is_run_directory(source):
        return None
    recipe, _, variant = with_own_text(source, overrides).partition(":")
    budget = names_in_file(find_recipe(recipe)).get("BUDGET")
    budget = budget.get(variant) if isinstance(budget, Mapping) else budget
    return None if budget is None else str(budget)
