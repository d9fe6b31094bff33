"""Whole runs of a few seconds: resumed, interrupted, damaged, diverged, out of patience."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from run_settings import UPDATES, tiny_config, tiny_settings

from transformer_jax import training_session
from transformer_jax.checkpoints import Checkpoints
from transformer_jax.commands.train import require_same_run
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, from_dict, to_json
from transformer_jax.loop import Outcome, Trainer, TrainingDiverged
from transformer_jax.reporting.metrics_log import read_metrics
from transformer_jax.run_directory import RunDirectory, write_json
from transformer_jax.tasks.run_tokenizers import tokenizers_for_training
from transformer_jax.tasks.translation import TranslationTask
from transformer_jax.training.sharding import make_mesh

SPEEDS = ("speed/", "validation/search_tokens_per_second")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def compiled_once(cache):
    """These tests compile the same few programs again and again; the processes that are killed share nothing."""
    settings = {"jax_enable_compilation_cache": True, "jax_compilation_cache_dir": str(cache / "compiled")}
    settings |= {"jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def trainer(config: ExperimentConfig, folder: Path, devices: int = 1) -> Trainer:
    run = RunDirectory(folder)
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    return Trainer(config, run, TranslationTask(config, tokenizers_for_training(config, run), mesh), mesh)


def train(config: ExperimentConfig, folder: Path, devices: int = 1) -> Outcome:
    return trainer(config, folder, devices).train()


def metrics_of(folder: Path) -> list[dict]:
    """Everything that was measured, but how fast."""
    records = read_metrics(folder / "metrics.jsonl")
    return [{key: value for key, value in record.items() if not key.startswith(SPEEDS)} for record in records]


def parameters_of(folder: Path, config: ExperimentConfig, step: int) -> list[np.ndarray]:
    checkpoints = Checkpoints(folder / "checkpoints", read_only=True)
    like = trainer(config, folder).update.state_shapes
    state, _ = checkpoints.restore(step, like)
    checkpoints.close()
    return jax.tree.leaves(jax.device_get(state))


def assert_same_run(one: Path, two: Path, config: ExperimentConfig) -> None:
    assert metrics_of(one) == metrics_of(two)
    for left, right in zip(*(parameters_of(folder, config, UPDATES) for folder in (one, two)), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory) -> Path:
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    assert train(tiny_config(cache), folder).reason == "finished"
    return folder


def test_a_run_describes_itself(whole):
    assert {path.name for path in whole.iterdir()} >= {"tokenizer", "checkpoints", "metrics.jsonl", "run.json"}
    records = metrics_of(whole)
    assert [record["step"] for record in records if "train/loss" in record] == list(range(1, UPDATES + 1))
    assert [record["step"] for record in records if "validation/bleu" in record] == [6, 12]
    start = json.loads((whole / "run.json").read_text())[0]
    assert start["packages"]["jax"] == jax.__version__
    assert start["seed"] == 0
    losses = [record["train/loss"] for record in records if "train/loss" in record]
    assert losses[-1] < losses[0]


def test_a_finished_run_that_is_started_again_does_nothing(whole, cache):
    before = metrics_of(whole)
    outcome = train(tiny_config(cache), whole)
    assert outcome[:3] == (UPDATES, "finished", pytest.approx(0, abs=101))
    assert "in updates" in outcome.time_spent
    goodput = json.loads((whole / "goodput.json").read_text())
    assert goodput["step"] == UPDATES
    assert min(goodput["seconds"][kind] for kind in ("step", "compile", "evaluation", "checkpoint")) > 0
    assert metrics_of(whole) == before


def test_a_signal_saves_and_the_same_command_goes_on_to_the_bit(whole, cache, tmp_path, monkeypatch):
    config = tiny_config(cache)
    original = Trainer._record

    def interrupting(self, step, *rest):
        original(self, step, *rest)
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Trainer, "_record", interrupting)
    outcome = train(config, tmp_path)
    assert outcome.reason == "interrupted"
    assert 4 <= outcome.step < 12
    monkeypatch.undo()
    assert train(config, tmp_path).reason == "finished"
    assert_same_run(whole, tmp_path, config)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_newest_checkpoint_costs_its_updates_and_nothing_else(whole, cache, tmp_path, capfd):
    config = tiny_config(cache)
    train(tiny_config(cache, num_updates=9), tmp_path)
    for file in (tmp_path / "checkpoints" / "9").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    train(config, tmp_path)
    assert "checkpoint 9 is damaged" in capfd.readouterr().err
    assert metrics_of(tmp_path)[-1] == metrics_of(whole)[-1]


def test_on_other_devices_it_goes_on_to_rounding(whole, cache, tmp_path):
    train(tiny_config(cache, num_updates=6), tmp_path)
    settings = tiny_settings(cache)
    settings["mesh"] = {"data": 2, "fsdp": 2, "tensor": 2}
    train(from_dict(settings), tmp_path, devices=8)
    ours, theirs = (
        [record["train/loss"] for record in metrics_of(f) if "train/loss" in record] for f in (tmp_path, whole)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_patience_ends_a_run_and_is_remembered(cache, tmp_path):
    config = tiny_config(cache, patience=1, evaluate_every=3, num_updates=30)
    settings = tiny_settings(cache, patience=1, evaluate_every=3, num_updates=30)
    settings["optimizer"]["learning_rate"] = 1e-9
    config = from_dict(settings)
    outcome = train(config, tmp_path)
    assert outcome.reason == "patience"
    assert outcome.step == 6
    assert train(config, tmp_path) == outcome


@pytest.mark.parametrize("parts", [1, 2])
def test_a_loss_that_is_not_finite_stops_with_the_tensor_named(cache, tmp_path, parts):
    settings = tiny_settings(cache)
    settings["batching"]["accumulation_steps"] = parts
    config = from_dict(settings)
    train(replace(config, training=replace(config.training, num_updates=3)), tmp_path)
    broken = trainer(config, tmp_path)
    original = broken.task.model.apply

    def poisoned(variables, *arguments, **options):
        params = dict(variables["params"])
        layer = jax.tree.map(lambda leaf: leaf * np.inf, params["encoder_layers_0"]["feed_forward"])
        params["encoder_layers_0"] = {**params["encoder_layers_0"], "feed_forward": layer}
        return original({"params": params}, *arguments, **options)

    object.__setattr__(broken.task.model, "apply", poisoned)
    with pytest.raises(
        TrainingDiverged, match=r"update 4: .* first tensor that is not finite: .*feed_forward.*kept: \[0, 3\]"
    ):
        broken.train()
    assert train(config, tmp_path).reason == "finished"


def start(folder: Path, config: ExperimentConfig) -> subprocess.Popen:
    """``train`` in a process of its own, with what the tests run under."""
    recipe = folder.parent / "recipe.py"
    recipe.write_text(
        f"from ml_collections import ConfigDict\n\ndef get_config():\n    return ConfigDict({to_json(config)['config']!r})\n"
    )
    command = [sys.executable, "-m", "transformer_jax", "train", f"--config={recipe}", f"--workdir={folder}"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "XLA_FLAGS": ""}
    )


def finished(process: subprocess.Popen) -> tuple[int, str]:
    """Exit status and everything that was printed."""
    output = process.communicate(timeout=300)[0].decode()
    return process.returncode, output


@pytest.mark.slow
def test_kill_9_at_any_moment_and_the_same_command_goes_on_to_the_bit(cache, tmp_path):
    config = tiny_config(cache)
    one, two = tmp_path / "one", tmp_path / "two"
    assert finished(start(one, config))[0] == 0
    for lines in (5,):
        process = start(two, config)
        while len(read_metrics(two / "metrics.jsonl")) < lines and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        finished(process)
    status, output = finished(start(two, config))
    assert status == 0, output
    assert "resumed at update" in output
    assert_same_run(one, two, config)


def test_other_settings_are_refused_with_the_differences(whole, cache):
    write_json(whole / "config.json", to_json(tiny_config(cache)))
    settings = tiny_settings(cache)
    settings["model"]["d_model"] = 32
    status, output = finished(start(whole, from_dict(settings)))
    assert status == 2
    assert "model.d_model: the run has 16, this command 32" in output


def test_bad_data_corrected_trains_in_the_same_folder(cache, tmp_path):
    """A start that failed leaves nothing that stands in the way of the next."""
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    pairs = "".join(f"{word} {word}s b\n" for word in ("a", "dog", "house", "tree", "c") * 30)
    for split in ("train", "validation"):
        for language in ("en", "de"):
            (data / f"{split}.{language}").write_text(pairs if language == "en" else pairs.replace("b", "bb"))
    (data / "train.de").write_text(pairs + "one too many\n")
    settings = tiny_settings(cache, num_updates=3)
    settings["data"] |= {"source": "text", "directory": str(data), "source_language": "en", "target_language": "de"}
    settings["mesh"]["data"] = -1
    with pytest.raises(DataError, match="150 lines but .* has 151"):
        session(from_dict(settings), run)
    assert not (run / "config.json").exists()
    (data / "train.de").write_text(pairs.replace("b", "bb"))
    settings["tokenizer"]["vocabulary_size"] = 32
    assert session(from_dict(settings), run) == 0
    assert json.loads((run / "config.json").read_text())["config"]["tokenizer"]["vocabulary_size"] == 32


def session(config: ExperimentConfig, folder: Path) -> int:
    """What the command does."""
    require_same_run(config, str(folder))
    return training_session.train(config, str(folder))


def test_a_refused_resumption_leaves_the_settings_as_they_were(cache, tmp_path):
    config = tiny_config(cache, num_updates=3)
    train(config, tmp_path)
    before = (tmp_path / "config.json").read_text()
    settings = tiny_settings(cache, num_updates=9)
    settings["data"]["directory"] = str(tmp_path)
    changed = trainer(from_dict(settings), tmp_path)
    changed.task.data_identity = {**changed.task.data_identity, "training data": "another"}
    with pytest.raises(ConfigError, match="the training data changed"):
        changed.train()
    assert (tmp_path / "config.json").read_text() == before
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"holds checkpoints but no config\.json"):
        require_same_run(config, str(tmp_path))


def test_a_validation_loss_that_is_not_finite_is_never_the_best(cache, tmp_path, monkeypatch):
    config = tiny_config(cache, num_updates=6, evaluate_every=3)
    original = Trainer._evaluate

    def broken(self, limit, step):
        report = original(self, limit, step)
        return replace(report, loss=float("nan")) if step == 3 else report

    monkeypatch.setattr(Trainer, "_evaluate", broken)
    with pytest.raises(TrainingDiverged, match="update 3: the validation loss is nan"):
        train(config, tmp_path)
    checkpoints = Checkpoints(tmp_path / "checkpoints", read_only=True)
    assert checkpoints.steps() == [0]
    checkpoints.close()


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    run = RunDirectory(tmp_path)
    with run.locked(), pytest.raises(ConfigError, match="another process is training"), RunDirectory(tmp_path).locked():
        pass
    with run.locked():
        pass


def test_a_damaged_line_of_metrics_is_told(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\n\0\0\n{"step": 2}\n{"st')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: not a record"):
        read_metrics(file)
