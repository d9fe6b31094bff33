"""Recipes and run directories as sources of settings."""

import json
import sys
from pathlib import Path

import pytest

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    config_for_use,
    from_dict,
    load_recipe,
    load_run_config,
    recipes,
    resolve,
    to_json,
)
from transformer_jax.config.recipes import SHIPPED, find_recipe, listed_recipes

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

VARIED = """
from ml_collections import ConfigDict
VARIANTS = ("tiny", "base")
def get_config(variant="base"):
    return ConfigDict({"model": {"d_ff": 64 if variant == "tiny" else 128}})
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(spec: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_recipe(spec)
    return str(raised.value)


def test_a_recipe_is_found_as_a_file_below_configs_and_in_the_package(folder, monkeypatch):
    (folder / "varied.py").write_text(VARIED)
    assert load_recipe("varied.py").model.d_ff == 128
    assert load_recipe(f"{folder}/varied.py:tiny").model.d_ff == 64
    assert load_recipe("transformer_base:big")["model"]["d_model"] == 1024
    assert load_recipe("configs/transformer_base.py")["model"]["d_model"] == 512
    for place in ("configs", "recipes"):
        (folder / place).mkdir()
        (folder / "varied.py").rename(folder / place / "varied.py")
        for spec in ("varied:tiny", "configs/varied.py:tiny", "varied.py:tiny"):
            assert load_recipe(spec).model.d_ff == 64
        monkeypatch.setattr(recipes, "SHIPPED", folder / "recipes")
        if place == "configs":
            (folder / place / "varied.py").rename(folder / "varied.py")


def test_an_unknown_variant_names_the_nearest(folder):
    (folder / "varied.py").write_text(VARIED)
    assert refused("varied.py:tinny") == "varied.py:tinny: unknown variant 'tinny'; did you mean varied.py:tiny?"
    assert refused("varied.py:zzz") == "varied.py:zzz: unknown variant 'zzz'; one of tiny, base"


def test_an_argument_where_none_is_taken_and_none_where_one_is(folder):
    (folder / "plain.py").write_text("def get_config(): return {}")
    (folder / "needy.py").write_text("VARIANTS = {'a': 1, 'b': 2}\ndef get_config(variant): return {}")
    assert refused("plain.py:x") == "plain.py:x: plain.py has no variants; leave out ':x'"
    assert refused("needy.py") == "needy.py: needs an argument after a colon, needy.py:ARGUMENT; one of a, b"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "broken.py: not a recipe: it has no function get_config()"),
        ("def get_config(): return 3", "broken.py: get_config() must return an ml_collections.ConfigDict, not int"),
        ("def get_config(:", "broken.py, line 1: invalid syntax"),
        ("\ndef get_config():\n    return {}['tiny']", "broken.py, line 3: KeyError: 'tiny'"),
        ("import nowhere", "broken.py, line 1: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_recipe_that_fails_is_one_line_with_file_and_line(folder, source, message):
    (folder / "broken.py").write_text(source)
    assert refused("broken.py") == message


def test_a_setting_that_the_recipe_leaves_open_must_be_given(folder):
    (folder / "open.py").write_text(
        "import ml_collections as m\n"
        "def get_config():\n"
        "    return m.ConfigDict({'data': {'directory': m.config_dict.required_placeholder(str)}})\n"
    )
    message = "^data.directory: the recipe requires a value; give --config.data.directory=VALUE$"
    with pytest.raises(ConfigError, match=message):
        resolve("open.py")
    assert resolve("open.py", [("data.directory", "here")]).data.directory == "here"


def test_recipes_import_their_siblings_and_are_forgotten(folder):
    for name, width in (("a", 1), ("b", 2)):
        (folder / name).mkdir()
        (folder / name / "house_base.py").write_text(f"WIDTH = {width}")
        (folder / name / "top.py").write_text("import house_base\ndef get_config(): return {'seed': house_base.WIDTH}")
    path = list(sys.path)
    assert load_recipe("a/top.py").seed == 1
    assert load_recipe("b/top.py").seed == 2
    assert sys.path == path
    assert "house_base" not in sys.modules


LISTED = {variant.spec: variant for recipe in listed_recipes() for variant in recipe.variants}


@pytest.mark.parametrize("spec", LISTED)
def test_every_shipped_recipe_resolves_and_says_what_to_expect(spec):
    train = "a.en,a.de" if spec.startswith("text") else "a.txt"
    resolve(spec, [("data.train", train)] if "text" in spec.split(":") else [])
    assert "transformer-jax train --config=" in (CONFIGS / f"{spec.partition(':')[0]}.py").read_text()


def test_a_recipe_without_a_variant_is_the_variant_for_text_if_text_is_named():
    named = resolve("language_model", [("data.train", "a.txt")])
    assert (named.data.source, named.data.train) == ("text", "a.txt")
    assert resolve("word_vectors", [("data.directory", "texts")]).data.source == "text"
    assert resolve("language_model", [("seed", "3")]).data.source == "grammar"


CONFIG = from_dict({"seed": 4, "data": {"source": "text", "directory": "/tmp/Bücher"}, "optimizer": {"epsilon": 1e-30}})


def write_run(folder, content) -> None:
    (folder / "config.json").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def refused_run(path) -> str:
    with pytest.raises(ConfigError) as raised:
        load_run_config(path)
    return str(raised.value)


def test_a_run_directory_serves_as_a_recipe(tmp_path):
    write_run(tmp_path, to_json(CONFIG))
    assert resolve(str(tmp_path)) == load_run_config(tmp_path / "config.json") == CONFIG
    assert resolve(str(tmp_path), [("seed", "9")]).seed == 9


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", ", line 1: not JSON: Expecting property name enclosed in double quotes"),
        ({"seed": 3}, ": not the settings of a run: expected an object with schema_version and config"),
        ([], ": not the settings of a run: expected an object with schema_version and config"),
        (
            {"schema_version": 99, "config": {}},
            ": schema_version: 99 is newer than 3; update transformer_jax",
        ),
        ({"schema_version": "1", "config": {}}, ": schema_version: '1' is not a version; expected 1 to 3"),
        ({"schema_version": True, "config": {}}, ": schema_version: True is not a version; expected 1 to 3"),
        (
            {"schema_version": 3, "config": {"model": {"rematerialise": "full"}}},
            ": model.rematerialise: unknown key; it is model.rematerialize now",
        ),
        ({"schema_version": 1, "config": {"sed": 1}}, ": sed: unknown key; did you mean seed?"),
        ({"schema_version": 1, "config": 5}, ": config: expected a block of settings, found 5"),
    ],
)
def test_what_is_not_a_config_is_refused_with_its_file(tmp_path, content, problem):
    write_run(tmp_path, content)
    assert refused_run(tmp_path) == f"{tmp_path / 'config.json'}{problem}"


def test_a_folder_that_is_not_a_run(tmp_path):
    assert refused_run(tmp_path) == f"{tmp_path}: not the directory of a run: it has no config.json"
    missing = tmp_path / "nowhere"
    assert refused_run(missing) == f"{missing}: No such file or directory; give the directory of a run"


def test_the_cache_of_a_run_is_never_that_of_its_settings(tmp_path):
    """Compiled programs are code, and a run may be somebody else's."""
    write_run(tmp_path, to_json(from_dict({"data": {"cache_directory": "/tmp/theirs", "source": "tfds", "name": "a"}})))
    default = ExperimentConfig().data.cache_directory
    assert [use(str(tmp_path)).data.cache_directory for use in (config_for_use, resolve)] == [default] * 2
    chosen = config_for_use(str(tmp_path), [("data.cache_directory", "/tmp/mine")])
    assert chosen.data.cache_directory == "/tmp/mine"
    assert not chosen.data.download
    assert config_for_use(str(tmp_path), [("data.download", "true")]).data.download


def test_a_bare_name_is_the_shipped_recipe_whatever_lies_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("text.py", "mine.py"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert find_recipe("text") == SHIPPED / "text.py"
    assert find_recipe("text.py") == Path("text.py")
    assert find_recipe("mine") == Path("mine.py")


def test_a_bare_name_is_a_recipe_even_where_a_folder_of_data_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "mine").mkdir()
    assert resolve("quickstart") == resolve(str(SHIPPED / "quickstart.py"))
    with pytest.raises(ConfigError, match=r"no recipe 'mine' \(looked for .*, mine/config.json\)"):
        resolve("mine")
    other = to_json(resolve("quickstart", [("seed", "7")]))
    (tmp_path / "quickstart" / "config.json").write_text(json.dumps(other), encoding="utf-8")
    assert resolve("quickstart").seed == 7
    with pytest.raises(ConfigError, match="not the directory of a run"):
        resolve(str(tmp_path / "mine"))
