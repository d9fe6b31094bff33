"""The best checkpoint is the same for everybody, whoever scored it."""

import json
from pathlib import Path

import pytest

from transformer_jax.checkpoints.selection import best_step, chosen_step, scored_checkpoints, steps_to_average
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, Metric, to_json
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tools.checkpoint_tools import chosen_steps

WATCHED = {100: 10.0, 150: 99.0, 200: 30.0, 300: 30.0, 400: 20.0}

BLEU = Metric("bleu", "maximize")


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    """The run scored nothing; the watcher also one that is gone, and not the last."""
    (tmp_path / "config.json").write_text(json.dumps(to_json(ExperimentConfig())))
    for step in (0, 100, 200, 300, 400, 500):
        (tmp_path / "checkpoints" / str(step)).mkdir(parents=True)
    log = tmp_path / "evaluate-validation" / "metrics.jsonl"
    log.parent.mkdir()
    records = [{"step": step, "validation/bleu": bleu, "validation/chrf": 50.0} for step, bleu in WATCHED.items()]
    log.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"step": 5')
    return RunDirectory(tmp_path)


def write_score(run: RunDirectory, step: int, text: str) -> None:
    folder = run.checkpoints / str(step) / "metrics"
    folder.mkdir()
    (folder / "metrics").write_text(text)


def test_the_watchers_scores_count_where_the_training_has_none(run):
    assert [each.score for each in scored_checkpoints(run)] == [None, 10.0, 30.0, 30.0, 20.0, None]
    assert chosen_step(run, "best") == 300
    assert steps_to_average(run, "best", 2) == chosen_steps(run, 2, "best", ()) == [200, 300]
    assert steps_to_average(run, "last", 5) == [100, 200, 300, 400, 500]


def test_without_any_score_the_last_is_the_best_and_a_damaged_log_is_told(run):
    log = run.watched("validation") / "metrics.jsonl"
    log.unlink()
    assert best_step(scored_checkpoints(run), BLEU) is None
    assert chosen_step(run, "best") == 500
    log.write_text("{\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 1: not a record"):
        chosen_step(run, "best")


def test_the_trainings_own_scores_count_before_all_others(run):
    write_score(run, 100, '{"bleu": 1.0}')
    assert [each.score for each in scored_checkpoints(run)] == [None, 1.0, None, None, None, None]
    assert chosen_step(run, "best") == 100


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
    assert [each.step for each in scored_checkpoints(run) if not each.is_sound] == [100]
    assert chosen_step(run, "best") == 300


@pytest.mark.parametrize("name", ["checkpoints", "evaluate-validation", "checkpoints/600"])
def test_nothing_is_written_through_a_linked_folder(run, tmp_path_factory, name):
    elsewhere, link = tmp_path_factory.mktemp("elsewhere"), run.path / name
    if link.exists():
        link.rename(run.path / "aside")
    link.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=f"{name} is a link"), run.locked():
        pass
    assert not list(elsewhere.iterdir())
