"""Recipes: Python files with ``get_config([argument]) -> ml_collections.ConfigDict``, named ``path.py[:argument]``.

A recipe may import ``ml_collections`` and its sibling recipes (``import transformer_base``). It may list the arguments it
understands in ``VARIANTS``, which turns a misspelled one into a message that names the nearest.
"""

from pathlib import Path

from ml_collections import ConfigDict

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.names import nearest
from transformer_jax.config.python_files import call_in_file

# A checkout (also of an editable install) has its own configs/; an installed wheel has none.
SOURCE_TREE = Path(__file__).resolve().parents[2]
CHECKOUTS = (SOURCE_TREE,) if (SOURCE_TREE / "pyproject.toml").is_file() else ()


def load_recipe(spec: str) -> ConfigDict:
    """Settings of the recipe ``spec``, for example ``configs/multi30k.py:tiny``; ``apply_overrides`` reads them.

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


def find_recipe(name: str) -> Path:
    """The file of a recipe: as given, or below ``configs/`` here or in the checkout; ``.py`` may be left out.

    Raises:
        ConfigError: it is in none of these places, which the message lists.
    """
    given = Path(name).expanduser()
    file = given if given.suffix == ".py" else given.with_name(given.name + ".py") if given.name else given
    places = [file]
    if not file.is_absolute():
        places.append(Path("configs") / file)
        places += [folder for checkout in CHECKOUTS for folder in (checkout / file, checkout / "configs" / file)]
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(dict.fromkeys(str(place) for place in places))
    known = sorted({recipe.stem for root in (Path(), *CHECKOUTS) for recipe in (root / "configs").glob("*.py")})
    near = nearest(file.stem, known)
    hint = f"; did you mean configs/{near}.py?" if near else f"; recipes here: {', '.join(known)}" if known else ""
    raise ConfigError(f"config: no recipe {name!r} (looked for {looked}){hint}")
