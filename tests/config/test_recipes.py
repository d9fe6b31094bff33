"""Recipes and run directories as sources of settings."""

import json
from pathlib import Path

import pytest

from transformer_jax.commands.config_command import listed_recipes
from transformer_jax.config import ConfigError, from_dict, load_recipe, load_run_config, recipes, resolve
from transformer_jax.config.conversion import to_json
from transformer_jax.config.recipes import SHIPPED, find_recipe
from transformer_jax.config.run_settings import config_for_use

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


def test_a_recipe_is_found_as_a_file_below_configs_and_in_the_package(folder, monkeypatch):
    (folder / "varied.py").write_text(VARIED)
    assert load_recipe("varied.py").model.d_ff == 128
    assert load_recipe(f"{folder}/varied.py:tiny").model.d_ff == 64
    assert load_recipe("transformer_base:big")["model"]["d_model"] == 1024
    assert load_recipe("configs/transformer_base.py")["model"]["d_model"] == 512
    monkeypatch.setattr(recipes, "SHIPPED", folder / "recipes")
    for place, before in (("configs", "."), ("recipes", "configs")):
        (folder / place).mkdir()
        (folder / before / "varied.py").rename(folder / place / "varied.py")
        for spec in ("varied:tiny", "configs/varied.py:tiny", "varied.py:tiny"):
            assert load_recipe(spec).model.d_ff == 64


@pytest.mark.parametrize(
    ("argument", "source", "message"),
    [
        (":tinny", VARIED, "mine.py:tinny: unknown variant 'tinny'; did you mean mine.py:tiny?"),
        (":x", "def get_config(): return {}", "mine.py:x: mine.py has no variants"),
        ("", "def get_config(): return 3", "mine.py: get_config() must return an ml_collections.ConfigDict"),
        ("", "def get_config(:", "mine.py, line 1: invalid syntax"),
        ("", "\ndef get_config():\n    return {}['tiny']", "mine.py, line 3: KeyError: 'tiny'"),
    ],
)
def test_a_recipe_that_fails_is_one_line_with_file_and_line(folder, argument, source, message):
    (folder / "mine.py").write_text(source)
    with pytest.raises(ConfigError) as raised:
        load_recipe(f"mine.py{argument}")
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


@pytest.mark.parametrize("spec", [variant.spec for recipe in listed_recipes() for variant in recipe.variants])
def test_every_shipped_recipe_resolves_and_says_what_to_expect(spec):
    train = "a.en,a.de" if spec.startswith("text") else "a.txt"
    resolve(spec, [("data.train", train)] if "text" in spec.split(":") else [])
    assert "transformer-jax train --config=" in (CONFIGS / f"{spec.partition(':')[0]}.py").read_text()


def test_a_recipe_without_a_variant_is_the_variant_for_text_if_text_is_named():
    assert resolve("language_model", [("data.train", "a.txt")]).data.source == "text"
    assert resolve("language_model", [("seed", "3")]).data.source == "grammar"


def write_run(folder, config) -> None:
    (folder / "config.json").write_text(json.dumps(to_json(config)), encoding="utf-8")


def test_a_run_directory_serves_as_a_recipe(tmp_path):
    data = {"source": "text", "directory": "/tmp/Bücher"}
    config = from_dict({"seed": 4, "data": data, "optimizer": {"epsilon": 1e-30}})
    write_run(tmp_path, config)
    assert resolve(str(tmp_path)) == load_run_config(tmp_path / "config.json") == config
    assert resolve(str(tmp_path), [("seed", "9")]).seed == 9


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "config.json: not the settings of a run: Expecting property name"),
        ("[]", "config.json: not the settings of a run: expected an object with schema_version and config"),
        ('{"schema_version": 99, "config": {}}', "config.json: schema_version: 99 is not one of 1 to 3; update"),
    ],
)
def test_what_is_not_a_config_is_refused_with_its_file(tmp_path, content, problem):
    with pytest.raises(ConfigError, match="not the directory of a run: it has no config.json"):
        load_run_config(tmp_path)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError) as raised:
        load_run_config(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}/{problem}")


def test_the_cache_of_a_run_is_never_that_of_its_settings(tmp_path):
    """Compiled programs are code, and a run may be somebody else's."""
    write_run(tmp_path, from_dict({"data": {"cache_directory": "/tmp/theirs", "source": "tfds", "name": "a"}}))
    default = from_dict({}).data.cache_directory
    assert [use(str(tmp_path)).data.cache_directory for use in (config_for_use, resolve)] == [default] * 2
    chosen = config_for_use(str(tmp_path), [("data.cache_directory", "/tmp/mine")])
    assert chosen.data.cache_directory == "/tmp/mine" and not chosen.data.download
    assert config_for_use(str(tmp_path), [("data.download", "true")]).data.download


def test_a_bare_name_is_a_recipe_whatever_lies_here(folder):
    for name in ("text.py", "mine.py"):
        (folder / name).write_text("", encoding="utf-8")
    assert find_recipe("text") == SHIPPED / "text.py"
    assert find_recipe("text.py") == Path("text.py")
    assert find_recipe("mine") == Path("mine.py")
    for name in ("quickstart", "data"):
        (folder / name).mkdir()
    assert resolve("quickstart") == resolve(str(SHIPPED / "quickstart.py"))
    with pytest.raises(ConfigError, match=r"no recipe 'data' \(looked for .*, data/config.json\)"):
        resolve("data")
    write_run(folder / "quickstart", resolve("quickstart", [("seed", "7")]))
    assert resolve("quickstart").seed == 7
