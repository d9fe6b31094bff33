"""Runs of a few seconds that diverge, lose patience or are refused."""

import errno
import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from run_settings import tiny_config, tiny_settings
from run_steps import train

from transformer_jax.checkpoints.reader import CheckpointReader
from transformer_jax.commands.train import train_and_report
from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.evaluation.scores import EvaluationReport, score_translations
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runs import train_run
from transformer_jax.runs.hooks import Hooks
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run import TrainingDiverged
from transformer_jax.tasks.translation import translation_task
from transformer_jax.tasks.translation.evaluator import TranslationEvaluation
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.tasks.translation.translation_task import TranslationTask


@pytest.mark.slow
def test_patience_ends_a_run_and_is_remembered(cache, tmp_path):
    settings = tiny_settings(cache, patience=1, evaluate_every=3, num_updates=30)
    settings["optimizer"]["learning_rate"] = 1e-9
    config = from_dict(settings)
    outcome = train(config, tmp_path)
    assert outcome.reason == "patience"
    assert outcome.step == 6
    assert train(config, tmp_path)[:3] == outcome[:3]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_with_the_tensor_named(cache, tmp_path, monkeypatch):
    settings = tiny_settings(cache)
    settings["batching"]["accumulation_steps"] = 2
    config = from_dict(settings)
    train(replace(config, training=replace(config.training, num_updates=3)), tmp_path)
    original = TranslationObjective.training_model

    def poisoned_model(self, hyperparameters):
        model = original(self, hyperparameters)
        apply = model.apply

        def poisoned(variables, *arguments, **options):
            params = dict(variables["params"])
            layer = jax.tree.map(lambda leaf: leaf * np.inf, params["encoder_layers_0"]["feed_forward"])
            params["encoder_layers_0"] = {**params["encoder_layers_0"], "feed_forward": layer}
            return apply({"params": params}, *arguments, **options)

        object.__setattr__(model, "apply", poisoned)
        return model

    monkeypatch.setattr(TranslationObjective, "training_model", poisoned_model)
    with pytest.raises(
        TrainingDiverged,
        match=r"update 4: loss nan per token, .* first tensor that is not finite: .*feed_forward.*kept: \[0, 3\]",
    ):
        train(config, tmp_path)
    monkeypatch.undo()
    assert train(config, tmp_path).reason == "finished"


@pytest.mark.slow
def test_updates_that_are_not_finite_are_skipped_and_counted(cache, tmp_path, monkeypatch):
    """One batch is poisoned each epoch: the run goes on past so many, over a resume too, and then
    ends."""
    config = tiny_config(cache, skip_nonfinite=2, log_every=1, evaluate_every=0)
    original = Hooks.call

    def poisoned(self, number, metrics, **options):
        finite = metrics.finite if number not in (4, 6, 9) else np.asarray(False)
        original(self, number, metrics._replace(finite=finite), **options)

    monkeypatch.setattr(Hooks, "call", poisoned)
    train(replace(config, training=replace(config.training, num_updates=6)), tmp_path)
    with pytest.raises(TrainingDiverged, match=r"update 9: loss [0-5]\.\d+ per token, "):
        train(config, tmp_path)
    records = [record for record in read_metrics(tmp_path / "metrics.jsonl") if "train/loss" in record]
    # A skipped update has no loss.
    found = [(record["step"], record.get("train/skipped_updates")) for record in records]
    assert found == [(1, None), (2, None), (3, None), (5, 1), (7, 2), (8, 2)]


def test_an_evaluation_without_the_selection_metric_fails_in_the_dry_run(cache, tmp_path, monkeypatch):
    config = tiny_config(cache, num_updates=6, evaluate_every=3)
    found = SimpleNamespace(metrics={"loss": 1.0, "chrf": 2.0}, basis="", signature="")
    monkeypatch.setattr(TranslationTask, "validate", lambda *arguments, **options: found)
    with pytest.raises(ConfigError, match="evaluation.selection: the evaluation has no bleu; choose one of loss, chrf"):
        train(config, tmp_path)
    monkeypatch.undo()
    assert not read_metrics(tmp_path / "metrics.jsonl")


def test_a_validation_loss_that_is_not_finite_is_never_the_best(cache, tmp_path, monkeypatch):
    config = tiny_config(cache, num_updates=6, evaluate_every=3)
    evaluations = itertools.count()

    def broken(self, params, split, *, limit=0):
        # The first is the dry run.
        loss, scores = float("nan") if next(evaluations) else 1.0, score_translations(["a b"], ["a b"])
        return TranslationEvaluation(EvaluationReport(split, scores, loss, 2.0, 3.0, 1, config.decoding, "float32"), [])

    monkeypatch.setattr(TranslationTask, "validate", broken)
    with pytest.raises(TrainingDiverged, match="update 3: the validation loss is nan"):
        train(config, tmp_path)
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert (outcome["step"], outcome["reason"]) == (3, "diverged")
    assert CheckpointReader(tmp_path / "checkpoints").steps() == [0]
    events = b"".join(file.read_bytes() for file in tmp_path.glob("events*"))
    assert b"validation/loss" in events, "the trackers have the last record too"


@pytest.mark.slow
def test_nothing_trained_on_damaged_tokens_is_saved(cache, tmp_path, monkeypatch):
    make_batch = translation_task.make_batch

    def damaged(store, plan, update, parts):
        if update == 4:
            raise DataError("source.ids changed since the data were tokenized")
        return make_batch(store, plan, update, parts)

    monkeypatch.setattr(translation_task, "make_batch", damaged)
    with pytest.raises(DataError, match=r"source\.ids changed"):
        train(tiny_config(cache, evaluate_every=0, checkpoint_every=3), tmp_path)
    assert RunDirectory(tmp_path).checkpoint_steps() == [0, 3]


@pytest.mark.parametrize("index", [0, 1])
def test_of_several_processes_the_first_writes_why_the_run_failed(tmp_path, monkeypatch, capsys, index):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    RunDirectory(tmp_path).checkpoints.mkdir()
    monkeypatch.setattr(train_run, "train_run", full)
    monkeypatch.setattr(jax, "process_index", lambda: index)
    assert train_and_report(from_dict({}), str(tmp_path), is_distributed=True) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert RunDirectory(tmp_path).outcome.exists() == (index == 0)


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    run = RunDirectory(tmp_path)
    with run.locked(), pytest.raises(ConfigError, match="another process is training"), RunDirectory(tmp_path).locked():
        pass
    with run.locked():
        pass


def test_a_folder_with_foreign_files_is_refused_before_anything_is_written(tmp_path, cache):
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ConfigError, match=r"holds files that are not of a run \(thesis\.tex\)"):
        train(tiny_config(cache), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "thesis.tex"]


def test_a_start_that_fails_leaves_nothing(tmp_path, cache, monkeypatch):
    def damaged(self):
        raise DataError("the corpus is damaged")

    monkeypatch.setattr(TranslationTask, "training_data", damaged)
    (tmp_path / "given").mkdir()
    for workdir in (tmp_path / "new" / "run", tmp_path / "given"):
        with pytest.raises(DataError, match="is damaged"):
            train(tiny_config(cache), workdir)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["given"]


def test_a_model_larger_than_the_memory_is_refused_before_anything_is_allocated(tmp_path, cache):
    config = tiny_config(cache)
    config = replace(config, model=replace(config.model, d_model=1_000_000_000))
    with pytest.raises(ConfigError, match=r"parameters and optimizer state need at least [\d,]+ GB, and there are"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_objective_that_lacks_something_is_refused(tmp_path, cache, monkeypatch):
    objective = SimpleNamespace(init_params=None, loss=None)
    monkeypatch.setattr(TranslationTask, "new_objective", lambda *arguments: objective)
    with pytest.raises(ConfigError, match="task=translation: its objective lacks activations, update_rule"):
        train(tiny_config(cache), tmp_path)
