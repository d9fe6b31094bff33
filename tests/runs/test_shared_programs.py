"""Trials of a sweep that differ only in numbers: one program for all of them, and each trains as if it were alone."""

from pathlib import Path

import jax
import numpy as np
import pytest
from run_settings import tiny_settings
from run_steps import parameters_of, train_alone

from transformer_jax import training_session
from transformer_jax.config import ExperimentConfig, from_dict, to_json
from transformer_jax.data.listed_tokenizer import WordTokenizer
from transformer_jax.data.tokenizers import TokenizerPair, save_tokenizers
from transformer_jax.run_directory import RunDirectory, write_json
from transformer_jax.tasks.objective import TranslationObjective
from transformer_jax.tasks.run_tokenizers import tokenizers_for_training
from transformer_jax.tasks.shared_programs import KEPT, SharedPrograms
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training_record import TrainingRecord

COMPILATION = "/jax/core/compile/backend_compile_duration"
TRIALS = [
    {},
    {"seed": 5},
    {"optimizer": {"learning_rate": 3e-3, "warmup_updates": 2, "b1": 0.8, "b2": 0.9, "epsilon": 1e-6}},
    {"training": {"label_smoothing": 0.3, "num_updates": 4, "evaluate_every": 2, "log_every": 2}},
    {
        "seed": 3,
        "model": {"dropout": 0.4, "embedding_dropout": 0.2},
        "optimizer": {"weight_decay": 0.2, "clip_norm": 0.3, "learning_rate": 2e-2},
        "training": {"label_smoothing": 0.2},
    },
]


def trial(cache: Path, changes: dict) -> ExperimentConfig:
    settings = tiny_settings(cache, num_updates=3, evaluate_every=3)
    settings["data"]["seed"] = 1
    settings["batching"]["num_buckets"] = 1
    settings["optimizer"] |= {"name": "adamw", "weight_decay": 0.1, "clip_norm": 1.0}
    for key, value in changes.items():
        settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) else value
    return from_dict(settings)


def trained(config: ExperimentConfig, folder: Path, shared: SharedPrograms) -> list[np.ndarray]:
    """The state at the end."""
    run, mesh = RunDirectory(folder), make_mesh(config.mesh, jax.devices()[:1])
    record = TrainingRecord(config, run, shared.task_of(config, tokenizers_for_training(config, run), mesh), mesh)
    assert train_alone(record).step == config.training.num_updates
    return parameters_of(folder, config, config.training.num_updates)


@pytest.fixture
def traced(monkeypatch):
    """A line for every time that the loss of a training step is traced."""
    calls, original = [], TranslationObjective.loss

    def counting(self, *arguments):
        calls.append(self.config)
        return original(self, *arguments)

    monkeypatch.setattr(TranslationObjective, "loss", counting)
    return calls


@pytest.fixture
def compilations():
    events = []

    def listen(event: str, seconds: float, **details: object) -> None:
        if event == COMPILATION:
            events.append(details.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
def test_trials_that_differ_in_numbers_share_one_compilation_and_train_as_if_alone(
    cache, tmp_path, traced, compilations
):
    shared = SharedPrograms()
    found = [trained(trial(cache, changes), tmp_path / f"{n}", shared) for n, changes in enumerate(TRIALS[:1])]
    compilations.clear()
    found += [trained(trial(cache, changes), tmp_path / f"{n + 1}", shared) for n, changes in enumerate(TRIALS[1:])]
    assert len(traced) == 1
    assert compilations == []
    assert all(
        any(not np.array_equal(*leaves) for leaves in zip(one, two, strict=True))
        for n, one in enumerate(found)
        for two in found[:n]
    )

    alone = trained(trial(cache, TRIALS[-1]), tmp_path / "alone", SharedPrograms())
    assert len(traced) == 2
    for one, two in zip(found[-1], alone, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_task_is_shared_where_structure_and_data_are_the_same(cache, tmp_path):
    mesh, shared = make_mesh(trial(cache, {}).mesh, jax.devices()[:1]), SharedPrograms()

    def task(changes: dict, folder: str = "new"):
        config = trial(cache, changes)
        return shared.task_of(config, tokenizers_for_training(config, RunDirectory(tmp_path / folder)), mesh)

    first = task({})
    assert task({"seed": 9, "optimizer": {"b1": 0.1}}) is first
    for changes in ({"data": {"seed": 2}}, {"training": {"label_smoothing": 0.0}}, {"model": {"d_ff": 8}}):
        assert task(changes) is not first
    assert task({}) is first
    for width in range(1, KEPT + 1):
        task({"model": {"d_ff": 100 + width}})
    assert task({}) is not first


def test_tokenizers_are_trained_once_for_one_text(cache, tmp_path):
    shared = SharedPrograms()

    def tokenizers(changes: dict, folder: str = "new"):
        return shared.tokenizers_of(trial(cache, changes), RunDirectory(tmp_path / folder))

    first = tokenizers({})
    assert tokenizers({"seed": 9, "optimizer": {"b1": 0.1}, "data": {"max_source_tokens": 30}}) is first
    for changes in (
        {"data": {"seed": 2}},
        {"data": {"seed": -1}},
        {"data": {"generated_words": 9}},
        {"tokenizer": {"vocabulary_size": 40}},
    ):
        assert tokenizers(changes) is not first
    # A run that has checkpoints keeps its own, and one that adopts another's takes those.
    other = WordTokenizer.train(["x y z"], 64)
    save_tokenizers(TokenizerPair(other, other), tmp_path / "begun" / "tokenizer")
    (tmp_path / "begun" / "checkpoints" / "3").mkdir(parents=True)
    write_json(tmp_path / "begun" / "config.json", to_json(trial(cache, {})))
    for found in (tokenizers({}, "begun"), tokenizers({"init": {"run": str(tmp_path / "begun")}})):
        assert found.source.fingerprint() == other.fingerprint() != first.source.fingerprint()


def test_a_session_takes_what_others_learned_and_compiled(cache, tmp_path):
    class AskedError(Exception):
        pass

    class Asked(SharedPrograms):
        def tokenizers_of(self, config, run):
            return shared.tokenizers_of(config, run)

        def task_of(self, config, tokenizers, mesh):
            raise AskedError(tokenizers is shared.tokenizers_of(config, RunDirectory(tmp_path)))

    shared = SharedPrograms()
    with pytest.raises(AskedError, match="True"):
        training_session.run_training(trial(cache, {"mesh": {"data": -1}}), str(tmp_path), shared=Asked())
