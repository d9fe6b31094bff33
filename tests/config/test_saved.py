import json

import pytest
from ml_collections import ConfigDict

from transformer_jax.config import (
    ConfigError,
    DecodingConfig,
    ExperimentConfig,
    TransformerConfig,
    apply_overrides,
    config_for_use,
    from_dict,
    from_json,
    load_run_config,
    resolve,
    to_json,
)
from transformer_jax.config.evaluation import EvaluationConfig
from transformer_jax.config.keys import leaf_keys
from transformer_jax.config.renamed import DEPRECATED, RENAMED, SCHEMA_VERSION

CONFIG = from_dict({"seed": 4, "data": {"source": "text", "directory": "/tmp/Bücher"}, "optimizer": {"epsilon": 1e-30}})


def write_run(folder, content) -> None:
    (folder / "config.json").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def refused(path) -> str:
    with pytest.raises(ConfigError) as raised:
        load_run_config(path)
    return str(raised.value)


def test_json_and_back_is_the_same(tmp_path):
    write_run(tmp_path, to_json(CONFIG))
    assert load_run_config(tmp_path) == CONFIG
    assert load_run_config(tmp_path / "config.json") == CONFIG


def test_the_schema_version_is_written():
    assert to_json(ExperimentConfig())["schema_version"] == 3


AS_BEFORE = EvaluationConfig(bleu_tokenizer="13a", selection="bleu")


def test_settings_added_since_keep_their_default():
    assert from_json({"schema_version": 1, "config": {"seed": 4}}) == ExperimentConfig(seed=4, evaluation=AS_BEFORE)


def test_runs_from_before_the_block_are_scored_as_they_were():
    """Whatever the language: their checkpoints hold the BLEU of 13a."""
    data = {"source": "text", "directory": "here", "target_language": "ja"}
    old = from_json({"schema_version": 2, "config": {"data": data}})
    assert old.evaluation.resolved("ja") == old.evaluation == AS_BEFORE and old.selection.name == "bleu"
    new = from_json({"schema_version": 2, "config": {"data": data, "evaluation": {}}})
    assert new.evaluation.resolved("ja") != AS_BEFORE
    assert from_json({"schema_version": 2, "config": {"task": "language_model"}}).evaluation == EvaluationConfig()


def test_renamed_settings_of_earlier_versions_are_migrated(tmp_path):
    old = {"schema_version": 1, "config": {"seed": 4, "model": {"d_ff": 64, "rematerialise": "full"}}}
    expected = ExperimentConfig(seed=4, model=TransformerConfig(d_ff=64, rematerialize="full"), evaluation=AS_BEFORE)
    assert from_json(old) == expected
    text = {"task": "language_model", "data": {"source": "text", "file": "a.txt", "held_out": 0.1}}
    assert from_json({"schema_version": 2, "config": text}).data.train == "a.txt"
    assert old["config"]["model"]["rematerialise"] == "full", "what was given stays as it was"
    write_run(tmp_path, old)
    assert resolve(str(tmp_path)) == expected


def test_removed_settings_are_left_out_of_saved_runs_and_refused_elsewhere():
    saved = {"schema_version": 3, "config": {"decoding": {"beam_width": 3, "shortlist": ""}}}
    assert from_json(saved).decoding == DecodingConfig(beam_width=3)
    saved["config"]["decoding"]["shortlist"] = "a.npz"
    with pytest.warns(UserWarning, match=r"decoding.shortlist=a.npz is ignored: the setting was removed"):
        assert from_json(saved).decoding == DecodingConfig(beam_width=3)
    with pytest.raises(ConfigError, match=r"decoding.shortlist: was removed"):
        apply_overrides({}, [("decoding.shortlist", "a.npz")])


def test_every_schema_version_has_its_renamed_keys():
    assert sorted(RENAMED) == list(range(1, SCHEMA_VERSION))
    known = {key for key, _ in leaf_keys()}
    assert set(DEPRECATED.values()) <= known
    assert known.isdisjoint(DEPRECATED)


def test_an_old_name_in_an_override_warns_with_the_new_one():
    with pytest.warns(FutureWarning, match=r"data.file is now data.train; the next release"):
        assert apply_overrides({}, [("data.file", "a.txt")]) == {"data": {"train": "a.txt"}}


def test_an_old_name_in_a_recipe_warns_and_follows_its_reference():
    recipe = ConfigDict({"model": {"rematerialise": "none", "feed_forward": "relu"}})
    recipe.model.feed_forward = recipe.model.get_ref("rematerialise")
    with pytest.warns(FutureWarning, match=r"model.rematerialise is now model.rematerialize"):
        found = apply_overrides(recipe, [("model.rematerialize", "full")])
    assert found == {"model": {"rematerialize": "full", "feed_forward": "full"}}


def test_both_names_are_refused():
    with pytest.raises(
        ConfigError, match=r"model.rematerialise: is the old name of model.rematerialize, which the recipe"
    ):
        apply_overrides({"model": {"rematerialise": "none", "rematerialize": "full"}})


def test_a_run_directory_serves_as_a_recipe(tmp_path):
    write_run(tmp_path, to_json(CONFIG))
    assert resolve(str(tmp_path)) == CONFIG
    assert resolve(str(tmp_path), [("seed", "9")]).seed == 9


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", ", line 1: not JSON: Expecting property name enclosed in double quotes"),
        ({"seed": 3}, ": not the settings of a run: expected an object with schema_version and config"),
        ([], ": not the settings of a run: expected an object with schema_version and config"),
        (
            {"schema_version": 99, "config": {}},
            ": schema_version: 99 was written by a newer version of transformer_jax, this one reads up to 3; update "
            "transformer_jax",
        ),
        ({"schema_version": "1", "config": {}}, ": schema_version: '1' is not a version; expected 1 to 3"),
        ({"schema_version": True, "config": {}}, ": schema_version: True is not a version; expected 1 to 3"),
        (
            {"schema_version": 3, "config": {"model": {"rematerialise": "full"}}},
            ": model.rematerialise: unknown key; did you mean model.rematerialize?",
        ),
        ({"schema_version": 1, "config": {"sed": 1}}, ": sed: unknown key; did you mean seed?"),
        ({"schema_version": 1, "config": 5}, ": config: expected a block of settings, found 5"),
    ],
)
def test_what_is_not_a_config_is_refused_with_its_file(tmp_path, content, problem):
    write_run(tmp_path, content)
    assert refused(tmp_path) == f"{tmp_path / 'config.json'}{problem}"


def test_a_folder_that_is_not_a_run(tmp_path):
    assert refused(tmp_path) == f"{tmp_path}: not the directory of a run: it has no config.json"
    missing = tmp_path / "nowhere"
    assert refused(missing) == f"{missing}: No such file or directory; give the directory of a run"


def test_the_cache_of_a_run_is_never_that_of_its_settings(tmp_path):
    """Compiled programs are code, and a run may be somebody else's."""
    write_run(tmp_path, to_json(from_dict({"data": {"cache_directory": "/tmp/theirs", "source": "tfds", "name": "a"}})))
    default = ExperimentConfig().data.cache_directory
    assert [use(str(tmp_path)).data.cache_directory for use in (config_for_use, resolve)] == [default] * 2
    chosen = config_for_use(str(tmp_path), [("data.cache_directory", "/tmp/mine")])
    assert chosen.data.cache_directory == "/tmp/mine"
    assert not chosen.data.download
    assert config_for_use(str(tmp_path), [("data.download", "true")]).data.download
