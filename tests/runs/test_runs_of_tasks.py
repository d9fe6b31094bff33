"""The loop trains language models and word vectors with nothing that is special to them:
checkpoints, resume, evaluation."""

import json
from dataclasses import replace

import pytest
from run_steps import assert_same_run, copy_until, metrics_of, train
from tasks.language_model_settings import language_model_config
from tools.word_vectors.word_vectors_settings import word_vectors_config

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError, to_json
from transformer_jax.run_directory.layout import RunDirectory, write_json
from transformer_jax.run_directory.selection import chosen_step
from transformer_jax.run_directory.stored_checkpoints import stored_checkpoints
from transformer_jax.runs.train_run import require_same_run

SELECTED = {"language_model": "bits_per_byte", "word_vectors": "loss"}
TRAINING = {"num_updates": 12, "evaluate_every": 6, "checkpoint_every": 3, "log_every": 1, "validation_sentences": 4}


@pytest.fixture(scope="module", params=[pytest.param("language_model", marks=pytest.mark.slow), "word_vectors"])
def config(request, cache, tmp_path_factory):
    if request.param == "language_model":
        config = language_model_config(cache)
        return replace(config, training=replace(config.training, **TRAINING, keep_last=9))
    sets = tmp_path_factory.mktemp("sets")
    (sets / "pairs.txt").write_text("man woman 9\nman runs 1\nwoman sees 2\n")
    return word_vectors_config(cache, data={"test_sets": str(sets)}, training={"keep_last": 9})


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    outcome = train(config, folder)
    assert (outcome.reason, outcome.metric) == ("finished", f"validation/{SELECTED[config.task]}")
    return folder


def of_language_model(test):
    return pytest.mark.slow(pytest.mark.parametrize("config", ["language_model"], indirect=True)(test))


def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(whole, config, tmp_path):
    run = copy_until(6, whole, tmp_path / "run")
    assert train(config, run).step == 12
    assert_same_run(run, whole, config)


def test_it_is_evaluated_listed_and_reported_by_the_commands_of_every_task(whole, config, tmp_path, capsys):
    name = SELECTED[config.task]
    assert main(["evaluate", f"--workdir={whole}", "--split=validation", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["checkpoint_step"] == 12
    assert report[name] > 0
    assert main(["checkpoint", "ls", str(whole)]) == 0
    assert f"validation {name.replace('_', ' ')}" in capsys.readouterr().out
    assert main(["report", str(whole), f"--output={tmp_path}"]) == 0
    heading, row = capsys.readouterr().out.splitlines()[2:4]
    assert heading.split()[1] == name.partition("_")[0]
    if config.task == "language_model":
        assert heading.endswith("validation bits per byte")
        assert float(row.split()[-1]) == pytest.approx(report[name], abs=1e-4)
    else:
        assert main(["vectors", "neighbors", "man", f"--workdir={whole}", "--checkpoint=last"]) == 0
        assert capsys.readouterr().out.startswith("man\n")
    assert (tmp_path / "curves.png").is_file()


@of_language_model
def test_the_best_checkpoint_has_the_fewest_bits_per_byte(whole):
    found = {record["step"]: record["validation/bits_per_byte"] for record in metrics_of(whole) if len(record) == 5}
    assert set(found) == {6, 12}
    assert found[12] < found[6]
    run = RunDirectory(whole)
    assert chosen_step(run, "best") == 12
    assert {
        checkpoint.step: checkpoint.score
        for checkpoint in stored_checkpoints(run.checkpoints)
        if checkpoint.score is not None
    } == found
    assert json.loads(run.outcome.read_text())["best"] == found[12]


def test_the_same_command_resumes_a_run_on_a_file(cache, tmp_path, monkeypatch):
    """The folder of the file may have been stated in another way, or the file may have moved."""
    file = tmp_path / "text.txt"
    file.write_text("".join(f"The {word} sleeps in the green garden.\n" for word in range(300)))
    monkeypatch.chdir(tmp_path)
    stated = language_model_config(cache, data={"source": "text", "train": "text.txt", "held_out": 0.1})
    file = tmp_path / "run" / "config.json"
    (tmp_path / "run" / "checkpoints" / "3" / "rest").mkdir(parents=True)
    write_json(file, to_json(replace(stated, data=stated.data.absolute())))
    require_same_run(stated, str(tmp_path / "run"))
    with pytest.raises(ConfigError, match="data.held_out: the run has 0.1"):
        require_same_run(replace(stated, data=replace(stated.data, held_out=0.2)), str(tmp_path / "run"))
