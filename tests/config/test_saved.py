import json

import pytest

from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    from_dict,
    from_json,
    load_run_config,
    resolve,
    to_json,
)

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
    assert to_json(ExperimentConfig())["schema_version"] == 1


def test_settings_added_since_keep_their_default():
    assert from_json({"schema_version": 1, "config": {"seed": 4}}) == ExperimentConfig(seed=4)


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
            ": schema_version: 99 is not 1; it was written by another version of this package",
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
