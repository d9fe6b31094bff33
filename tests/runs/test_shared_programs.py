"""Trials of a sweep that differ only in hyperparameters: one program for all of them, and each trains as if it were alone."""

import itertools
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from run_settings import tiny_settings
from run_steps import parameters_of

from transformer_jax.config import ExperimentConfig, from_dict, to_json
from transformer_jax.data.tokenizers import TokenizerPair, save_tokenizers
from transformer_jax.data.tokenizers.listed import WordTokenizer
from transformer_jax.runs import train as train_module
from transformer_jax.runs.run_directory import RunDirectory, write_json
from transformer_jax.runs.shared_programs import KEPT, SharedPrograms
from transformer_jax.tasks.registry import new_tokenizers
from transformer_jax.tasks.run_tokenizers import tokenizers_for_training
from transformer_jax.tasks.translation.objective import TranslationObjective
from transformer_jax.tools.sweeps.definition import Sweep
from transformer_jax.tools.sweeps.overview import rows
from transformer_jax.tools.sweeps.storage import open_storage
from transformer_jax.tools.sweeps.study import SharedStudy
from transformer_jax.tools.sweeps.worker import Worker
from transformer_jax.training.sharding import make_mesh

COMPILATION = "/jax/core/compile/backend_compile_duration"
# Four rows of hyperparameters, each to be trained with three seeds.
ROWS = {
    "plain": {},
    "quick": {
        "optimizer.learning_rate": 3e-3,
        "optimizer.warmup_updates": 2,
        "optimizer.b1": 0.8,
        "optimizer.b2": 0.9,
        "optimizer.epsilon": 1e-6,
    },
    "long": {
        "training.label_smoothing": 0.3,
        "training.num_updates": 4,
        "training.evaluate_every": 2,
        "training.log_every": 2,
    },
    "careful": {
        "model.dropout": 0.4,
        "model.embedding_dropout": 0.2,
        "optimizer.weight_decay": 0.2,
        "optimizer.clip_norm": 0.3,
        "optimizer.learning_rate": 2e-2,
        "training.label_smoothing": 0.2,
    },
}
SEEDS = (0, 5, 3)


def settings_of(cache: Path, changes: dict) -> dict:
    settings = tiny_settings(cache, num_updates=3, evaluate_every=3)
    settings["data"]["seed"] = 1
    settings["batching"]["num_buckets"] = 1
    settings["optimizer"] |= {"name": "adamw", "weight_decay": 0.1, "clip_norm": 1.0}
    for key, value in changes.items():
        settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) else value
    return settings


def trial(cache: Path, changes: dict) -> ExperimentConfig:
    return from_dict(settings_of(cache, changes))


@pytest.fixture
def sweep(cache, tmp_path, monkeypatch) -> Sweep:
    """Twelve trials, each to be trained on one device."""
    monkeypatch.setattr(train_module, "make_mesh", lambda config, devices: make_mesh(config, jax.devices()[:1]))
    recipe = tmp_path / "recipe.py"
    recipe.write_text(f"def get_config():\n    return {settings_of(cache, {})!r}\n")
    return Sweep(config=str(recipe), rows=ROWS, seeds=SEEDS, metric="validation/loss")


def trained(configs: list[ExperimentConfig], folder: Path, shared: SharedPrograms) -> None:
    """Trains them at once."""
    folders = [folder / str(place) for place in range(len(configs))]
    endings = train_module.train_vectorized(configs, folders, [lambda step, found: False] * len(configs), shared)
    assert [ending.step for ending in endings] == [config.training.num_updates for config in configs]


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
def compilations(no_compilation_cache):
    events = []

    def listen(event: str, seconds: float, **details: object) -> None:
        if event == COMPILATION:
            events.append(str(details.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
def test_twelve_trials_that_differ_in_numbers_share_one_compilation_and_train_as_if_alone(
    sweep, tmp_path, traced, compilations
):
    study = SharedStudy(sweep, open_storage(str(tmp_path / "study.journal")), "s")
    Worker(study, tmp_path, partial(train_module.train_vectorized, shared=SharedPrograms())).work()
    trials = rows(study)
    assert [each.state for each in trials] == ["complete"] * 12
    assert len(traced) == 1
    assert sum("train_step" in name for name in compilations) == 1

    configs = [sweep.settings(each.point) for each in trials]
    found = [
        parameters_of(Path(each.folder), config, config.training.num_updates)
        for each, config in zip(trials, configs, strict=True)
    ]
    assert all(
        any(not np.array_equal(*leaves) for leaves in zip(one, two, strict=True))
        for one, two in itertools.combinations(found, 2)
    )
    trained(configs[-1:], tmp_path / "alone", SharedPrograms())
    assert len(traced) == 2
    alone = parameters_of(tmp_path / "alone" / "0", configs[-1], configs[-1].training.num_updates)
    for one, two in zip(found[-1], alone, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_a_second_pack_compiles_nothing(sweep, tmp_path, traced, compilations):
    configs = [sweep.settings(point) for point in sweep.points()]
    shared = SharedPrograms()
    trained(configs[:2], tmp_path / "first", shared)
    assert len(traced) == 1
    assert compilations
    compilations.clear()
    trained([configs[4], configs[-1]], tmp_path / "second", shared)
    assert len(traced) == 1
    assert compilations == []


def test_a_program_is_shared_where_structure_and_data_are_the_same(cache, tmp_path):
    mesh, shared = make_mesh(trial(cache, {}).mesh, jax.devices()[:1]), SharedPrograms()

    def program(changes: dict, folder: str = "new"):
        config = trial(cache, changes)
        tokenizers = tokenizers_for_training(config, RunDirectory(tmp_path / folder), new_tokenizers)
        return shared.program_of(config, tokenizers, mesh)

    first = program({})
    assert program({"seed": 9, "optimizer": {"b1": 0.1}}) is first
    for changes in ({"data": {"seed": 2}}, {"training": {"label_smoothing": 0.0}}, {"model": {"d_ff": 8}}):
        assert program(changes) is not first
    assert program({}) is first
    for width in range(1, KEPT + 1):
        program({"model": {"d_ff": 100 + width}})
    assert program({}) is not first


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

        def program_of(self, config, tokenizers, mesh):
            raise AskedError(tokenizers is shared.tokenizers_of(config, RunDirectory(tmp_path)))

    shared = SharedPrograms()
    with pytest.raises(AskedError, match="True"):
        train_module.run_training(trial(cache, {"mesh": {"data": -1}}), str(tmp_path), shared=Asked())
