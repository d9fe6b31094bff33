"""Recipes: Python files with ``get_config([argument])``, named ``path.py[:argument]``.

It returns an ``ml_collections.ConfigDict``.

Recipes of the package need neither folder nor suffix: ``multi30k:tiny``. A recipe may import its
sibling recipes (``import transformer_base``). It may also define:

- ``VARIANTS``: all arguments, of which a misspelled one is reported with the nearest;
- ``MEASURED``: hardware, time and score of a run, by argument;
- ``BUDGET``: the default of ``--budget``;
- ``OWN_TEXT``: the default variant if the command names text files.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_jax.errors import ConfigError, nearest
from transformer_jax.registry.python_files import call_in_file, names_in_file

if TYPE_CHECKING:
    from ml_collections import ConfigDict

SOURCE_TREE = Path(__file__).resolve().parents[2]
# A checkout has the recipes in configs/, an installed wheel in transformer_jax/recipes/.
SHIPPED = SOURCE_TREE / ("configs" if (SOURCE_TREE / "pyproject.toml").is_file() else "transformer_jax/recipes")


def load_recipe(spec: str) -> "ConfigDict":
    """Return the settings of a recipe, such as ``multi30k:tiny`` or ``mine.py``.

    Raises ConfigError when there is no such file, the recipe fails, does not know the argument, or
    returns something else.
    """
    from ml_collections import ConfigDict

    name, _, argument = spec.partition(":")
    path = find_recipe(name)
    config = call_in_file(path, "get_config", argument, "a recipe")
    if not isinstance(config, dict | ConfigDict):
        problem = f"get_config() must return an ml_collections.ConfigDict, not {type(config).__name__}"
        raise ConfigError(str(path), problem)
    return ConfigDict(config)


def with_own_text(spec: str, overrides: Iterable[tuple[str, str]]) -> str:
    """Add the variant ``OWN_TEXT`` if ``overrides`` name text files."""
    if ":" in spec or not {key for key, _ in overrides} & {"data.train", "data.directory"}:
        return spec
    variant = names_in_file(find_recipe(spec)).get("OWN_TEXT")
    return f"{spec}:{variant}" if variant else spec


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, in the current folder, in ``./configs/``, or in the package.

    ``.py`` and ``configs/`` are optional. A bare name, ``text``, is searched in the current folder
    last, so that an unrelated ``text.py`` does not run instead. Raises ConfigError, with the files
    that were tried, if there is none.
    """
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError("config", f"{name!r} is not a recipe", "recipes are Python files; see docs/other_toolkits.md")
    file = path if path.suffix == ".py" else path.with_name(path.name + ".py") if path.name else path
    files = [file]
    if not file.is_absolute():
        inside = file.relative_to("configs") if file.parts[:1] == ("configs",) else file
        files += [Path("configs") / file, SHIPPED / inside]
    if path == Path(path.name) and path.suffix != ".py":
        files = [*files[1:], file]
    if existing := next((file for file in files if file.is_file()), None):
        return existing
    files += [path / "config.json"] if path.is_dir() else []
    tried = ", ".join(dict.fromkeys(str(file) for file in files))
    recipes = sorted({recipe.stem for folder in (Path("configs"), SHIPPED) for recipe in folder.glob("[!_]*.py")})
    near = nearest(file.stem, recipes)
    hint = f"did you mean {near}?" if near else f"recipes here: {', '.join(recipes)}" if recipes else ""
    raise ConfigError("config", f"no recipe {name!r} (looked for {tried})", hint)


def is_recipe(spec: str) -> bool:
    """Return whether there is a recipe of this name. Raises ConfigError for a YAML file."""
    if not spec or Path(spec).suffix in (".yaml", ".yml"):
        return bool(spec and find_recipe(spec))
    with suppress(ConfigError):
        return find_recipe(spec.partition(":")[0]).is_file()
    return False


def recipe_with_kind(kind: str) -> str:
    """Return the recipe of the package that names this kind of model most often, or ""."""
    counts = {
        file.stem: file.read_text(encoding="utf-8").count(f'"kind": "{kind}"') for file in SHIPPED.glob("[!_]*.py")
    }
    recipe = max(sorted(counts), key=counts.__getitem__, default="")
    return recipe if counts.get(recipe) else ""
