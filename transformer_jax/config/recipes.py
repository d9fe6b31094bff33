"""Recipes: Python files with ``get_config([argument]) -> ml_collections.ConfigDict``, named ``path.py[:argument]``.

A recipe may import ``ml_collections`` and its sibling recipes (``import transformer_base``). It may list the arguments it
understands in ``VARIANTS``, which turns a misspelled one into a message that names the nearest.
"""

import difflib
import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer_jax.config.errors import ConfigError

# A checkout (also of an editable install) has its own configs/; an installed wheel has none.
SOURCE_TREE = Path(__file__).resolve().parents[2]
CHECKOUTS = (SOURCE_TREE,) if (SOURCE_TREE / "pyproject.toml").is_file() else ()


def load_recipe(spec: str) -> ConfigDict:
    """What the recipe ``spec`` states, for example ``configs/multi30k.py:tiny``; ``apply_overrides`` reads it.

    Raises:
        ConfigError: no such file, the recipe fails, it does not know the argument, or it returns something else.
    """
    name, _, argument = spec.partition(":")
    path = find_recipe(name)
    with _recipe_imports(path.parent), _told_in_one_line(spec, path):
        # Under a name of its own: run_path puts the module where a recipe called copy.py would hide the real copy.
        namespace = runpy.run_path(str(path), run_name=f"recipe_{path.stem}")
        get_config = namespace.get("get_config")
        if not callable(get_config):
            raise ConfigError(f"{path}: not a recipe: it has no function get_config()")
        _require_variant(spec, path, argument, get_config, namespace.get("VARIANTS"))
        config = get_config(argument) if argument else get_config()
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
    near = difflib.get_close_matches(file.stem, known, n=1)
    hint = f"; did you mean configs/{near[0]}.py?" if near else f"; recipes here: {', '.join(known)}" if known else ""
    raise ConfigError(f"config: no recipe {name!r} (looked for {looked}){hint}")


def _require_variant(spec: str, path: Path, argument: str, get_config: Callable[..., Any], variants: Any) -> None:
    """Raises ConfigError unless ``get_config`` can be called with this argument (or with none, when it is empty)."""
    parameters = inspect.signature(get_config).parameters.values()
    names = [str(variant) for variant in variants or ()]
    listing = f"; one of {', '.join(names)}" if names else ""
    if not argument:
        if any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters):
            raise ConfigError(f"{spec}: needs an argument after a colon, {path.name}:ARGUMENT{listing}")
        return
    if not parameters:
        raise ConfigError(f"{spec}: {path.name} has no variants; leave out {':' + argument!r}")
    if names and argument not in names:
        near = difflib.get_close_matches(argument, names, n=1)
        hint = f"; did you mean {path.name}:{near[0]}?" if near else listing
        raise ConfigError(f"{spec}: unknown variant {argument!r}{hint}")


@contextmanager
def _recipe_imports(folder: Path) -> Iterator[None]:
    """Lets a recipe import its siblings, and forgets them afterwards: another folder may have recipes of the same name."""
    before = set(sys.modules)
    # At the end: a recipe called copy.py must not hide the module of the standard library.
    sys.path.append(str(folder.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.resolve()))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().parent == folder.resolve():
                del sys.modules[name]


@contextmanager
def _told_in_one_line(spec: str, path: Path) -> Iterator[None]:
    """Turns whatever a recipe raises into one ConfigError with the file and the line in it."""
    try:
        yield
    except ConfigError:
        raise
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).resolve().parent == path.resolve().parent]
        where = f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else spec
        raise ConfigError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}") from error
