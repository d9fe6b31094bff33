"""Runs that an earlier version wrote: restored, evaluated, resumed. See tests/data/old_runs."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from run_steps import metrics_of, train

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError, MeshConfig, load_run_config
from transformer_jax.files.json_text import parse_json
from transformer_jax.registry.python_files import load_plugin
from transformer_jax.run_directory.layout import TRUST_CONFIG, ChosenRun, write_json
from transformer_jax.runs.train_run import require_same_run
from transformer_jax.tasks.trained_run import open_trained

OLD_RUNS = Path(__file__).resolve().parents[1] / "data" / "old_runs"


@pytest.fixture
def old_run(request, tmp_path) -> Path:
    return Path(shutil.copytree(OLD_RUNS / getattr(request, "param", "transformer"), tmp_path / "run"))


def test_an_old_run_is_resumed(old_run, cache):
    config = load_run_config(old_run)
    config = replace(
        config,
        data=replace(config.data, cache_directory=str(cache)),
        training=replace(config.training, num_updates=6),
    )
    before = metrics_of(old_run)
    require_same_run(config, str(old_run))
    outcome = train(config, old_run)
    assert (outcome.step, outcome.reason) == (6, "finished")
    metrics = metrics_of(old_run)
    assert metrics[: len(before)] == before
    assert [record["step"] for record in metrics[len(before) :]] == [5, 6, 6]
    assert metrics[-2]["train/loss"] < before[0]["train/loss"], "it did not restart"
    assert metrics[-2]["train/target_tokens"] > before[-2]["train/target_tokens"]
    assert load_run_config(old_run) == config
    assert (old_run / "checkpoints" / "6").is_dir()


@pytest.mark.parametrize(("key", "changed"), [("length_penalty", 0.4), ("seed", 9)])
def test_settings_that_are_not_those_of_the_checkpoints_are_refused(old_run, key, changed, capsys, monkeypatch):
    monkeypatch.setenv(TRUST_CONFIG, "")
    file = old_run / "config.json"
    settings = parse_json(file.read_text())
    block = settings["config"] if key in settings["config"] else settings["config"]["decoding"]
    before, block[key] = block[key], changed
    # Settings that may change do not count.
    settings["config"]["training"] |= {"num_updates": 99, "keep_last": 2}
    write_json(file, settings)
    refusals = [["checkpoint", "ls", str(old_run)], ["score", str(old_run), "--source=none", "--target=none"]]
    for command in refusals:
        assert main(command) == 2
        said = capsys.readouterr().err
        assert f"{key}: {changed}, in the checkpoint {before}" in said
        assert "num_updates" not in said
    with pytest.raises(ConfigError, match="not the settings that checkpoint 4 was written with"):
        require_same_run(load_run_config(old_run), str(old_run))
    assert main(["checkpoint", "ls", str(old_run), "--trust_config"]) == 0


@pytest.mark.parametrize(
    ("names", "warned"), [("word_dropout, word_dropout", "word_dropout twice and applied it twice; now once"), ("", "")]
)
def test_a_corruption_that_was_applied_twice_is_told(old_run, names, warned, capsys, monkeypatch):
    monkeypatch.setenv(TRUST_CONFIG, "1")
    settings = parse_json((old_run / "config.json").read_text())
    settings["config"]["training"]["corruptions"] = names
    write_json(old_run / "config.json", settings)
    require_same_run(load_run_config(old_run), str(old_run))
    said = capsys.readouterr().err
    assert warned in said and ("twice" in said) == bool(names)


@pytest.mark.parametrize("old_run", ["rnn"], indirect=True)
@pytest.mark.slow
def test_a_run_is_resumed_and_opened_with_the_plugin_files_that_it_loaded(old_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(TRUST_CONFIG, "")
    file = tmp_path / "mine.py"
    file.write_text("SIZE = 1")
    load_plugin(str(file))
    write_json(old_run / "run.json", [{"plugins": {str(file): "another digest"}}])
    with pytest.raises(ConfigError, match=r"--plugin: .*mine\.py changed since .*--trust_config"):
        require_same_run(load_run_config(old_run), str(old_run))
    config = replace(load_run_config(old_run), mesh=MeshConfig())
    open_trained(ChosenRun(str(old_run), config, "last"))
    assert "mine.py changed since the run loaded it" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("old_run", ["rnn"], indirect=True)
def test_an_old_run_scores_what_it_scored_then(old_run, cache):
    config = load_run_config(old_run)
    config = replace(config, data=replace(config.data, cache_directory=str(cache)), mesh=MeshConfig())
    trained = open_trained(ChosenRun(str(old_run), config, "last"))
    found = trained.evaluate("validation", limit=config.training.validation_sentences).metrics
    logged = metrics_of(old_run)[-1]
    for name in ("loss", "perplexity", "bleu", "chrf"):
        assert found[name] == pytest.approx(logged[f"validation/{name}"], rel=1e-4), name
