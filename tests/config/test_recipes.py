import runpy
import sys
from pathlib import Path

import pytest

from transformer_jax.config import ConfigError, load_recipe, recipes, resolve
from transformer_jax.config.recipes import listed_recipes

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


def test_the_argument_after_the_colon_chooses_the_structure(folder):
    (folder / "varied.py").write_text(VARIED)
    assert load_recipe("varied.py").model.d_ff == 128
    assert load_recipe("varied.py:tiny").model.d_ff == 64
    assert load_recipe(f"{folder}/varied.py:tiny").model.d_ff == 64


def test_a_bare_name_is_found_below_configs(folder):
    (folder / "configs").mkdir()
    (folder / "configs" / "varied.py").write_text(VARIED)
    assert load_recipe("varied:tiny").model.d_ff == 64


def test_the_checkout_has_recipes_wherever_one_stands(folder):
    assert load_recipe("transformer_base:big")["model"]["d_model"] == 1024
    assert load_recipe("configs/transformer_base.py")["model"]["d_model"] == 512


def test_an_unknown_variant_names_the_nearest(folder):
    (folder / "varied.py").write_text(VARIED)
    assert refused("varied.py:tinny") == "varied.py:tinny: unknown variant 'tinny'; did you mean varied.py:tiny?"
    assert refused("varied.py:zzz") == "varied.py:zzz: unknown variant 'zzz'; one of tiny, base"


def test_an_argument_where_none_is_taken_and_none_where_one_is(folder):
    (folder / "plain.py").write_text("def get_config(): return {}")
    (folder / "needy.py").write_text("VARIANTS = {'a': 1, 'b': 2}\ndef get_config(variant): return {}")
    assert refused("plain.py:x") == "plain.py:x: plain.py has no variants; leave out ':x'"
    assert refused("needy.py") == "needy.py: needs an argument after a colon, needy.py:ARGUMENT; one of a, b"


def test_a_missing_recipe_says_where_it_was_looked_for_and_the_nearest(folder):
    message = refused("configs/transformer_bas.py")
    assert message.startswith("config: no recipe 'configs/transformer_bas.py' (looked for configs/transformer_bas.py, ")
    assert message.endswith("; did you mean transformer_base?")


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
    message = "^data.directory: the recipe leaves it open; give --config.data.directory=VALUE$"
    with pytest.raises(ConfigError, match=message):
        resolve("open.py")
    assert resolve("open.py", [("data.directory", "here")]).data.directory == "here"


def test_references_between_settings_follow_an_override(folder):
    (folder / "linked.py").write_text(
        "import ml_collections as m\n"
        "def get_config():\n"
        "    config = m.ConfigDict({'model': {'d_model': 64}})\n"
        "    config.model.d_ff = config.model.get_ref('d_model') * 4\n"
        "    return config.lock()\n"
    )
    assert resolve("linked.py").model.d_ff == 256
    assert resolve("linked.py", [("model.d_model", "128")]).model.d_ff == 512
    assert resolve("linked.py", [("model.d_model", "128"), ("model.d_ff", "8")]).model.d_ff == 8


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


@pytest.mark.parametrize("name", ["copy", "colorsys"])
def test_a_recipe_called_like_a_standard_module_hides_nothing(folder, monkeypatch, name):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (folder / f"{name}.py").write_text(
        f"import {name} as s\ndef get_config(): return {{'data': {{'name': s.__file__}}}}"
    )
    assert Path(load_recipe(f"{name}.py").data.name).parent != folder


def test_overrides_reach_settings_that_the_recipe_does_not_state(folder):
    (folder / "plain.py").write_text("def get_config(): return {'seed': 5}")
    config = resolve("plain.py", [("decoding.beam_width", "9")])
    assert (config.seed, config.decoding.beam_width) == (5, 9)


def _specs() -> list[str]:
    """Every recipe of the checkout in every variant."""
    specs = []
    with pytest.MonkeyPatch.context() as patch:
        # As recipes are loaded: they may import their siblings.
        patch.syspath_prepend(CONFIGS)
        for file in sorted(CONFIGS.glob("*.py")):
            variants = runpy.run_path(str(file)).get("VARIANTS", ())
            specs += [f"{file}:{variant}" for variant in variants] or [str(file)]
        for file in CONFIGS.glob("*.py"):
            sys.modules.pop(file.stem, None)
    return specs


@pytest.mark.parametrize("spec", _specs(), ids=lambda spec: Path(spec).name)
def test_every_shipped_recipe_resolves_and_says_what_to_expect(spec):
    needs_text = Path(spec).name == "text.py" or spec.endswith(":text")
    resolve(spec, [("data.train", "a.en,a.de" if spec.endswith("text.py") else "a.txt")] if needs_text else [])
    text = Path(spec.partition(":")[0]).read_text()
    assert "transformer-jax train --config=" in text


def test_listed_recipes_are_those_that_ship_each_with_what_was_measured():
    listed = {variant.spec: variant for recipe in listed_recipes() for variant in recipe.variants}
    assert {spec.replace(".py", "") for spec in (Path(spec).name for spec in _specs())} == set(listed)
    assert listed["multi30k:tiny_hour"].measured == ("2 shared CPU cores", "50 min", "test BLEU 37.0")
    assert {len(variant.measured) for variant in listed.values()} == {0, 3}, "what was not run says nothing"


def test_a_wheel_has_its_recipes_as_a_package(folder, monkeypatch):
    (folder / "recipes").mkdir()
    (folder / "recipes" / "varied.py").write_text(VARIED)
    monkeypatch.setattr(recipes, "SHIPPED", folder / "recipes")
    for spec in ("varied:tiny", "configs/varied.py:tiny", "varied.py:tiny"):
        assert load_recipe(spec).model.d_ff == 64
