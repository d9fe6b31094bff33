"""A run scored from outside: every checkpoint once, with the numbers of ``evaluate``, whatever the run deletes."""

import json
import shutil
from dataclasses import replace

import pytest
from run_settings import tiny_config
from run_steps import copy_until, train

from transformer_jax.__main__ import main
from transformer_jax.checkpoints.format import CheckpointError
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.selection import chosen_step
from transformer_jax.config import ConfigError, DataError, MeshConfig
from transformer_jax.evaluation.scores import EvaluationReport, score_translations
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory, write_json
from transformer_jax.runs.watch import MAX_ATTEMPTS, watch
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tasks.translation.evaluator import TranslationEvaluation
from transformer_jax.tasks.translation.task import TranslationTask


@pytest.fixture(scope="module")
def config(cache):
    """A run of six updates with checkpoints after the third and the sixth, which never searches."""
    return tiny_config(cache, num_updates=6, evaluate_every=0, checkpoint_every=3)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert train(config, folder).reason == "finished"
    return folder


@pytest.fixture
def scored(monkeypatch):
    """The updates that were scored, in their order; the scores are made up."""
    steps, restored = [], []

    def restore_params(self, step, like):
        restored.append(step)
        return original(self, step, like)

    def validate(task, params, split, *, limit=0):
        assert len(steps) < 4, "again and again"
        steps.append(restored[-1])
        scores = score_translations(["a b c d" if steps[-1] == 3 else "d c"], ["a b c d"])
        report = EvaluationReport(split, scores, 1.0, 2.0, 3.0, 1, task.config.decoding, "float32")
        return TranslationEvaluation(report, [])

    original = Checkpoints.restore_params
    monkeypatch.setattr(Checkpoints, "restore_params", restore_params)
    monkeypatch.setattr(TranslationTask, "validate", validate)
    return steps


def watched(folder, config, pause=lambda: pytest.fail("there was nothing to wait for"), split="validation"):
    """What was said."""
    run = RunDirectory(folder)
    return list(watch(run, replace(config, mesh=MeshConfig()), split, run.watched(split), pause=pause))


@pytest.mark.slow
def test_every_checkpoint_gets_the_numbers_of_evaluate(whole, tmp_path, capsys):
    folder = copy_until(6, whole, tmp_path / "run")
    assert main(["evaluate", f"--workdir={folder}", "--watch", "--poll_seconds=600"]) == 0
    assert "update 6: validation BLEU" in capsys.readouterr().out
    records = read_metrics(whole / "metrics.jsonl")
    assert len(records) == 6 and not any(key.startswith("validation/") for record in records for key in record)
    records = read_metrics(folder / "evaluate-validation" / "metrics.jsonl")
    assert [record["step"] for record in records] == [3, 6]
    assert list((folder / "evaluate-validation").glob("events*"))
    assert main(["evaluate", f"--workdir={folder}", "--split=validation", "--checkpoint=3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = {name: records[0][f"validation/{name}"] for name in ("bleu", "chrf", "loss", "perplexity")}
    expected = {name: report["scores"][name] for name in ("bleu", "chrf")}
    assert found == expected | {name: report[name] for name in ("loss", "perplexity")}


@pytest.mark.slow
def test_it_waits_for_checkpoints_until_the_last(whole, config, scored, tmp_path):
    folder = copy_until(-1, whole, tmp_path / "run")
    (folder / "outcome.json").unlink()
    coming, waits = iter((0, 3, 6)), []

    def pause():
        waits.append(list(scored))
        step = str(next(coming))
        shutil.copytree(whole / "checkpoints" / step, folder / "checkpoints" / step)

    said = watched(folder, config, pause)
    # The first, of the untrained model, is no more than a sign of life.
    assert waits == [[], [], [3]]
    assert scored == [3, 6]
    assert "no checkpoint yet" in said[0]
    assert "the best so far" in said[1]
    assert "best 100.00 at update 3" in said[2]


def test_what_was_done_is_not_done_again(whole, config, scored, tmp_path):
    folder = copy_until(6, whole, tmp_path / "run")
    watched(folder, config)
    log = folder / "evaluate-validation" / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    watched(folder, config)
    assert scored == [3, 6]
    log.write_text(lines[0] + lines[1][:-9])  # Killed while it wrote.
    watched(folder, config)
    assert scored == [3, 6, 6]
    assert log.read_text() == "".join(lines)
    with pytest.raises(ConfigError, match="'beam_width': 2.*'beam_width': 7"):
        watched(folder, replace(config, decoding=replace(config.decoding, beam_width=7)))


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_checkpoint_that_cannot_be_read_is_left_out(whole, config, scored, tmp_path, monkeypatch, is_deleted):
    folder = copy_until(6, whole, tmp_path / "run")
    read, pauses = Checkpoints.restore_params, []

    def restore_params(checkpoints, step, like):
        if step == 3:
            if is_deleted:
                shutil.rmtree(folder / "checkpoints" / "3")
            raise CheckpointError("gone")
        return read(checkpoints, step, like)

    monkeypatch.setattr(Checkpoints, "restore_params", restore_params)
    said = watched(folder, config, lambda: pauses.append(None))
    assert scored == [6]
    assert len(pauses) == (0 if is_deleted else MAX_ATTEMPTS)
    assert ("the run deleted the checkpoint" if is_deleted else "update 3: left out: gone") in said[0]


@pytest.mark.parametrize("reason", ["stopped", "diverged", "interrupted"])
def test_a_training_that_ended_early_is_over_and_an_interrupted_one_is_not(reason, whole, config, scored, tmp_path):
    folder = copy_until(3, whole, tmp_path / "run")
    write_json(folder / "outcome.json", {"step": 3, "reason": reason, "best_bleu": None, "time_spent": ""})
    waits = []

    def pause():
        assert not waits, "for ever"
        waits.append(None)
        write_json(folder / "outcome.json", {"reason": "patience"})

    watched(folder, config, pause)
    assert scored == [3]
    assert len(waits) == (reason == "interrupted")


def test_the_best_is_the_watchers_where_the_training_scored_none(whole, config, scored, tmp_path):
    folder = copy_until(6, whole, tmp_path / "run")
    run = RunDirectory(folder)
    assert chosen_step(run, "best") == 6
    watched(folder, config)
    assert open_trained(ChosenRun(str(folder), replace(config, mesh=MeshConfig()))).steps == (3,)
    assert (chosen_step(run, "best"), chosen_step(run, "last")) == (3, 6)
    shutil.rmtree(folder / "checkpoints" / "3")
    assert chosen_step(run, "best") == 6


def test_what_a_watcher_cannot_do_is_refused_before_it_waits(whole, config, tmp_path, capsys):
    for flags, message in (("--average=2", "--average: --watch scores"), ("--source=a", "--source")):
        assert main(["evaluate", f"--workdir={whole}", "--watch", flags]) == 2
        assert message in capsys.readouterr().err
    folder = copy_until(-1, whole, tmp_path / "run")
    with pytest.raises(DataError, match="has no split 'tset'"):
        watched(folder, config, split="tset")
    assert not RunDirectory(folder).watched("tset").exists()
