"""Runs of a few seconds: resumed, interrupted, killed, damaged."""

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from run_settings import UPDATES, tiny_config, tiny_settings
from run_steps import (
    assert_same_run,
    copy_until,
    finished,
    metrics_of,
    on_devices,
    read_parameters,
    session,
    start,
    train,
)

from transformer_jax.checkpoints import save_failure
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, from_dict, to_json
from transformer_jax.data.synthetic.symbols import SymbolCorpus
from transformer_jax.files.json_text import parse_json
from transformer_jax.run_directory.layout import RunDirectory, write_json
from transformer_jax.run_directory.stored_checkpoints import stored_checkpoints
from transformer_jax.runs.hooks import Hooks
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.train_run import require_same_run
from transformer_jax.tasks.translation.translation_task import TranslationTask


def scheduled_settings(cache: Path, **training: object) -> dict:
    """Settings of a run with schedules of several kinds and an average of its parameters."""
    values = tiny_settings(cache, loss_terms="z_loss", label_smoothing="cosine(0.2,0)", **training)
    values["model"] |= {"dropout": "step(0.3,0.1,5)"}
    values["optimizer"] |= {"averaging": "ema"}
    return values | {"parts": {"z_loss": {"weight": "linear(0,1e-2)"}}}


def scheduled_config(cache: Path) -> ExperimentConfig:
    """The same, checked."""
    return from_dict(scheduled_settings(cache))


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory) -> Path:
    """An uninterrupted run with schedules and an average."""
    folder = tmp_path_factory.mktemp("whole")
    assert train(scheduled_config(cache), folder).reason == "finished"
    return folder


def test_a_run_describes_itself(whole):
    assert {path.name for path in whole.iterdir()} >= {"tokenizer", "checkpoints", "metrics.jsonl", "run.json"}
    records = metrics_of(whole)
    assert [record["step"] for record in records if "train/loss" in record] == list(range(1, UPDATES + 1))
    assert [record["step"] for record in records if "validation/bleu" in record] == [6, 12]
    start = json.loads((whole / "run.json").read_text())[0]
    assert start["packages"]["jax"] == jax.__version__
    assert start["seed"] == 0
    # The loss has schedules.
    losses = [record["train/nll"] for record in records if "train/nll" in record]
    assert losses[-1] < losses[0]
    weights = [record["train/parts.z_loss.weight"] for record in records if "train/loss" in record]
    np.testing.assert_allclose(weights, np.linspace(0, 1e-2, UPDATES), rtol=1e-5)
    measured = read_metrics(whole / "metrics.jsonl")[0]
    assert measured["host/memory_gb"] > 0.05 and measured["host/free_disk_gb"] > 0


def test_a_finished_run_that_is_started_again_does_nothing(whole, cache, monkeypatch):
    before = metrics_of(whole)
    # It needs no room for another checkpoint.
    monkeypatch.setattr(save_failure.shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    (whole / f"goodput.json.{'a' * 32}.partial").write_text("left by a kill")
    outcome = train(scheduled_config(cache), whole)
    assert not list(whole.glob("*.partial"))
    best = max(record["validation/bleu"] for record in before if "validation/bleu" in record)
    assert outcome[:3] == (UPDATES, "finished", best)
    assert "in updates" in outcome.time_spent
    goodput = json.loads((whole / "goodput.json").read_text())
    assert goodput["step"] == UPDATES
    assert min(goodput["seconds"][kind] for kind in ("step", "evaluation", "checkpoint")) > 0
    assert metrics_of(whole) == before


def test_a_damaged_time_sheet_is_refused_before_anything_is_written(whole, cache, tmp_path):
    run = copy_until(UPDATES, whole, tmp_path / "run")
    (run / "goodput.json").write_text("{}")
    before = (run / "run.json").read_text()
    with pytest.raises(DataError, match=r"not the goodput\.json of a run"):
        train(scheduled_config(cache), run)
    assert (run / "outcome.json").exists() and (run / "run.json").read_text() == before


@pytest.mark.slow
def test_a_run_with_changes_after_updates_resumes_to_the_bit(cache, tmp_path):
    values = scheduled_settings(cache)
    values["model"] |= {"feed_forward": "mixture_of_experts"}
    values["optimizer"] |= {"after_update": "balance_bias"}
    values["parts"] |= {"mixture_of_experts": {"balance_bias": True}}
    config, whole = from_dict(values), tmp_path / "whole"
    assert train(config, whole).reason == "finished"
    run = copy_until(6, whole, tmp_path / "run")
    assert train(config, run).reason == "finished"
    assert_same_run(whole, run, config)
    (bias, *_) = (leaf for path, leaf in read_parameters(run, "last").items() if path.endswith("balance_bias"))
    assert np.abs(bias).max() > 0, "evaluated with its state, not with an average"


def test_a_signal_saves_and_the_same_command_goes_on_to_the_bit(whole, cache, tmp_path, monkeypatch):
    config = scheduled_config(cache)
    original = Hooks.call

    def interrupting(self, number, metrics, **options):
        original(self, number, metrics, **options)
        if number == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Hooks, "call", interrupting)
    with on_devices(1):
        assert session(config, tmp_path) == 128 + signal.SIGTERM
    outcome = parse_json((tmp_path / "outcome.json").read_text())
    assert (outcome["reason"], outcome["signal"]) == ("interrupted", signal.SIGTERM)
    assert outcome["step"] == 5, "the update that was running"
    monkeypatch.undo()
    end_in_validation(monkeypatch)
    assert train(config, tmp_path)[:2] == (6, "interrupted"), "no update after the signal"
    assert [record["step"] for record in metrics_of(tmp_path)][-1] == 6
    monkeypatch.undo()
    assert train(config, tmp_path).reason == "finished"
    assert_same_run(whole, tmp_path, config)
    assert_same_scores(whole, tmp_path)


@pytest.mark.slow
def test_a_signal_in_the_last_validation_ends_before_it_and_it_is_made_up_for(whole, cache, tmp_path, monkeypatch):
    config, run = scheduled_config(cache), copy_until(9, whole, tmp_path / "run")
    end_in_validation(monkeypatch)
    assert train(config, run)[:2] == (UPDATES, "interrupted")
    assert train(config, run)[:2] == (UPDATES, "interrupted"), "it is cut short again"
    monkeypatch.undo()
    # Killed after the validation was logged, before the checkpoint with its score is whole.
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Checkpoints, "remove_unless_only", raise_keyboard_interrupt)
        train(config, run)
    monkeypatch.undo()
    assert train(config, run)[:2] == (UPDATES, "finished")
    assert_same_run(whole, run, config)
    assert_same_scores(whole, run)


@pytest.mark.slow
def test_a_hook_is_called_after_every_update_and_may_end_the_run(cache, tmp_path):
    seen = []

    def hook(run, position):
        number, results = position.number, position.results
        seen.append((number, int(position.state.step) - number, results.is_saved, "train/loss" in results.logged))
        if number == 4:
            position.stop()

    assert train(scheduled_config(cache), tmp_path, callbacks=[hook])[:2] == (5, "stopped")
    assert [number for number, *_ in seen] == list(range(6))
    assert [number for number, _, is_saved, _ in seen if is_saved] == [0, 3, 5]
    assert all(ahead == 0 if is_saved else ahead in (0, 1) for _, ahead, is_saved, _ in seen)
    assert [is_logged for *_, is_logged in seen] == [False, *[True] * 5]


def end_in_validation(monkeypatch) -> None:
    """Every validation gets a signal and never returns."""

    def ending(self, params, split, *, limit=0):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal came first")

    monkeypatch.setattr(TranslationTask, "validate", ending)


def raise_keyboard_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def assert_same_scores(one: Path, two: Path) -> None:
    stored = [stored_checkpoints(run / "checkpoints") for run in (one, two)]
    ours, theirs = ({each.step: each.score for each in run if each.score is not None} for run in stored)
    assert ours == theirs != {}


def test_a_refused_resumption_leaves_the_settings_as_they_were(whole, cache, tmp_path, monkeypatch):
    run = copy_until(3, whole, tmp_path / "run")
    before = (run / "config.json").read_text()
    settings = scheduled_settings(cache, num_updates=9)
    settings["data"]["directory"] = str(tmp_path)
    monkeypatch.setattr(SymbolCorpus, "fingerprint", lambda self, split: "another")
    with pytest.raises(ConfigError, match=r"the training data changed(?s:.*)data\.directory: the run has ''"):
        train(from_dict(settings), run)
    monkeypatch.undo()
    assert (run / "config.json").read_text() == before
    (run / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"has checkpoints but no config\.json"):
        require_same_run(scheduled_config(cache), str(run))


def test_a_lock_is_not_taken_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("text")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), RunDirectory(tmp_path / "run").locked():
        pass
    assert (tmp_path / "precious").read_text() == "text"


@pytest.mark.slow
def test_a_run_goes_on_from_one_device_to_eight_to_four_to_one(cache, tmp_path):
    resumed, whole = tmp_path / "resumed", tmp_path / "whole"
    assert train(tiny_config(cache), whole, devices=1).step == UPDATES
    split = {"data": 2, "fsdp": 2, "tensor": 2}
    for devices, mesh, updates in ((1, {}, 3), (8, split, 6), (4, {"data": 4}, 9), (1, {}, UPDATES)):
        settings = tiny_settings(cache, num_updates=updates)
        settings["mesh"] = mesh
        assert train(from_dict(settings), resumed, devices=devices).step == updates
    ours, theirs = (
        [record["train/loss"] for record in metrics_of(folder) if "train/loss" in record] for folder in (resumed, whole)
    )
    assert len(ours) == UPDATES
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.slow
def test_kill_9_at_any_moment_and_the_same_command_goes_on_to_the_bit(whole, cache, tmp_path):
    config = scheduled_config(cache)
    run = tmp_path / "run"
    process = start(run, config)
    while not (run / "checkpoints" / "3").is_dir() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    finished(process)
    status, output = finished(start(run, config))
    assert status == 0, output
    assert "resumed at update" in output
    assert_same_run(whole, run, config)


def test_other_settings_are_refused_with_the_differences(whole, cache):
    write_json(whole / "config.json", to_json(scheduled_config(cache)))
    settings = scheduled_settings(cache)
    settings["model"]["d_model"] = 32
    with pytest.raises(ConfigError, match="model.d_model: the run has 16, this command 32"):
        require_same_run(from_dict(settings), str(whole))
    settings = scheduled_settings(cache) | {"evaluation": {"bleu_tokenizer": "intl"}}
    with pytest.raises(ConfigError, match="bleu, tokenized by 13a, selects the checkpoints of this run; keep 13a"):
        TranslationTask.begin(from_dict(settings), RunDirectory(whole))
