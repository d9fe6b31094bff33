"""The best checkpoint, by the scores of the validations, and checkpoints by name."""

import json
import shutil
from pathlib import Path

import pytest

from transformer_jax.config import ConfigError, ExperimentConfig, Metric, to_json
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.selection import best_step, chosen_step, steps_to_average
from transformer_jax.run_directory.stored_checkpoints import stored_checkpoints
from transformer_jax.tools.checkpoint_tools.averages import averaged_steps

SCORES = {100: 10.0, 200: 30.0, 300: 30.0, 400: 20.0}

BLEU = Metric("bleu", "maximize")


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    """A run without a score of the first checkpoint and of the last."""
    (tmp_path / "config.json").write_text(json.dumps(to_json(ExperimentConfig())))
    for step in (0, *SCORES, 500):
        (tmp_path / "checkpoints" / str(step)).mkdir(parents=True)
    run = RunDirectory(tmp_path)
    for step, bleu in SCORES.items():
        write_score(run, step, json.dumps({"bleu": bleu, "chrf": 50.0}))
    return run


def write_score(run: RunDirectory, step: int, text: str) -> None:
    folder = run.checkpoints / str(step) / "metrics"
    folder.mkdir(exist_ok=True)
    (folder / "metrics").write_text(text)


def test_the_best_is_the_newest_of_equal_scores(run):
    assert [checkpoint.score for checkpoint in stored_checkpoints(run.checkpoints)] == [
        None,
        10.0,
        30.0,
        30.0,
        20.0,
        None,
    ]
    assert chosen_step(run, "best") == 300
    assert steps_to_average(run, "best", 2) == averaged_steps(run, 2, "best", ()) == [200, 300]
    assert steps_to_average(run, "last", 5) == [100, 200, 300, 400, 500]


def test_without_any_score_the_last_is_the_best(run):
    for step in SCORES:
        shutil.rmtree(run.checkpoints / str(step) / "metrics")
    assert best_step(stored_checkpoints(run.checkpoints), BLEU) is None
    assert chosen_step(run, "best") == 500


def test_a_damaged_score_that_may_have_been_the_best_is_named(run, capsys):
    assert chosen_step(run, "best") == 300 and capsys.readouterr().err == ""
    write_score(run, 300, '{"bleu": 3x.0}')
    assert steps_to_average(run, "best", 1) == [200]
    assert (
        f"{run.checkpoints}/300: damaged: its score cannot be read; best of the others is 200"
        in capsys.readouterr().err
    )
    for which, tells in (("best", False), ("last", True), ("400", True)):
        chosen_step(run, which, tells=tells)
        assert capsys.readouterr().err == ""


def test_a_checkpoint_that_is_being_deleted_ends_nothing(run, monkeypatch):
    write_score(run, 400, '{"bleu": 50.0}')
    read = Path.read_text

    def deleted(path, *arguments, **settings):
        if path.parts[-3:] == ("400", "metrics", "metrics"):
            raise FileNotFoundError(path)
        return read(path, *arguments, **settings)

    monkeypatch.setattr(Path, "read_text", deleted)
    assert chosen_step(run, "best") == 300


@pytest.mark.parametrize("text", ['{"bleu": "9"}', "[" * 50_000, "[1]"])
def test_a_score_that_is_no_number_is_damage(run, text):
    write_score(run, 100, text)
    assert [checkpoint.step for checkpoint in stored_checkpoints(run.checkpoints) if not checkpoint.is_sound] == [100]
    assert chosen_step(run, "best") == 300


@pytest.mark.parametrize("name", ["checkpoints", "tokenizer", "checkpoints/600"])
def test_nothing_is_written_through_a_linked_folder(run, tmp_path_factory, name):
    elsewhere, link = tmp_path_factory.mktemp("elsewhere"), run.path / name
    if link.exists():
        link.rename(run.path / "aside")
    link.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=f"{name} is a link"), run.locked():
        pass
    assert not list(elsewhere.iterdir())
