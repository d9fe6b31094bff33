"""The loop learns word vectors with nothing that is special to them: checkpoints, resume, evaluation."""

import json
from dataclasses import replace

import pytest
from run_steps import assert_same_run, copy_until, metrics_of, train
from tools.word_vectors.word_vectors_settings import word_vectors_config

from transformer_jax.__main__ import main
from transformer_jax.tools.word_vectors.task.task import vectors_of_run


@pytest.fixture(scope="module")
def config(cache, tmp_path_factory):
    sets = tmp_path_factory.mktemp("sets")
    (sets / "pairs.txt").write_text("man woman 9\nman runs 1\nwoman sees 2\n")
    return word_vectors_config(cache, data={"test_sets": str(sets)}, training={"keep_last": 9})


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    outcome = train(config, folder)
    assert (outcome.reason, outcome.metric) == ("finished", "validation/loss")
    return folder


def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(whole, config, tmp_path):
    run = copy_until(6, whole, tmp_path / "run")
    assert train(config, run).step == 12
    assert_same_run(run, whole, config)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(whole, config, tmp_path):
    train(config, tmp_path / "again")
    assert_same_run(tmp_path / "again", whole, config)
    train(replace(config, seed=1), tmp_path / "other")
    assert metrics_of(tmp_path / "other") != metrics_of(whole)


def test_it_is_evaluated_by_the_command_of_every_task(whole, capsys):
    assert main(["evaluate", f"--workdir={whole}", "--split=validation", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["checkpoint_step"] == 12
    assert report["loss"] > 0


def test_its_vectors_are_read_by_the_commands_of_vectors(whole, capsys):
    assert main(["vectors", "neighbors", "man", f"--workdir={whole}", "--checkpoint=last"]) == 0
    assert capsys.readouterr().out.startswith("man\n")
    vectors = vectors_of_run(whole, "last")
    assert vectors.words[0] == "the"
    assert vectors.matrix.shape == (len(vectors.words), 8)
    assert main(["vectors", "evaluate", f"--workdir={whole}"]) == 0
    assert "pairs" in capsys.readouterr().out
