"""Recipes: Python files with ``get_config([argument]) -> ml_collections.ConfigDict``, named ``path.py[:argument]``.

Those of the package need neither folder nor ending: ``multi30k:tiny``. A recipe may import ``ml_collections`` and its sibling
recipes (``import transformer_base``). It may list the arguments it understands in ``VARIANTS``, which turns a misspelled one
into a message that names the nearest, and in ``MEASURED`` the hardware, the time and the score of those that were run.
``OWN_TEXT`` is the variant that a recipe without one stands for where the command names text of its own.
"""

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.names import nearest
from transformer_jax.config.python_files import call_in_file, names_in_file
from transformer_jax.config.renamed import current_key

SOURCE_TREE = Path(__file__).resolve().parents[2]
# A checkout (also of an editable install) has configs/, which an installed wheel has as transformer_jax.recipes.
SHIPPED = (
    SOURCE_TREE / "configs"
    if (SOURCE_TREE / "pyproject.toml").is_file()
    else Path(__file__).resolve().parents[1] / "recipes"
)


class ListedVariant(NamedTuple):
    """A variant of a recipe as ``--config`` names it, and its run, if there was one: ``hardware``, ``time`` and ``score``."""

    spec: str
    summary: str
    measured: tuple[str, ...]


class ListedRecipe(NamedTuple):
    """A recipe of the package: the first line of its docstring, and its variants."""

    name: str
    summary: str
    variants: tuple[ListedVariant, ...]


def load_recipe(spec: str) -> ConfigDict:
    """Settings of the recipe ``spec``, for example ``multi30k:tiny`` or ``mine.py``; ``apply_overrides`` reads them.

    Raises:
        ConfigError: no such file, the recipe fails, it does not know the argument, or it returns something else.
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
    """``language_model`` is ``language_model:text`` where ``overrides`` name the text; any other recipe is as it is."""
    if ":" in spec or not {current_key(key) for key, _ in overrides} & {"data.train", "data.directory"}:
        return spec
    variant = names_in_file(find_recipe(spec)).get("OWN_TEXT")
    return f"{spec}:{variant}" if variant else spec


def find_recipe(name: str) -> Path:
    """The file of a recipe: as given, below ``configs/`` here, or of the package; ``.py`` and ``configs/`` may be left out.

    Raises:
        ConfigError: it is in none of these places, which the message lists.
    """
    given = Path(name).expanduser()
    file = given if given.suffix == ".py" else given.with_name(given.name + ".py") if given.name else given
    places = [file]
    if not file.is_absolute():
        inside = file.relative_to("configs") if file.parts[:1] == ("configs",) else file
        places += [Path("configs") / file, SHIPPED / inside]
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(dict.fromkeys(str(place) for place in places))
    known = sorted({recipe.stem for folder in (Path("configs"), SHIPPED) for recipe in folder.glob("[!_]*.py")})
    near = nearest(file.stem, known)
    hint = f"; did you mean {near}?" if near else f"; recipes here: {', '.join(known)}" if known else ""
    raise ConfigError(f"config: no recipe {name!r} (looked for {looked}){hint}")


def listed_recipes() -> list[ListedRecipe]:
    """Every recipe of the package in every variant, by name."""
    return [_listed(file) for file in sorted(SHIPPED.glob("[!_]*.py"))]


def _listed(file: Path) -> ListedRecipe:
    names = names_in_file(file)
    measured = names.get("MEASURED", {})
    variants = []
    for variant in names.get("VARIANTS", ("",)):
        described = names.get(variant)
        text = inspect.getdoc(described) if inspect.isfunction(described) else None
        spec = f"{file.stem}:{variant}" if variant else file.stem
        variants.append(ListedVariant(spec, (text or "").split("\n")[0], measured.get(variant, ())))
    return ListedRecipe(file.stem, names["__doc__"].split("\n")[0], tuple(variants))
