"""Trainings that run as one program: each comes out as it would alone, and ends for itself."""

import json
import os
import shutil
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_settings import tiny_settings
from run_steps import metrics_of, train

from transformer_jax.config import ConfigError, ExperimentConfig, from_dict, hyperparameters_of
from transformer_jax.runs.checkpoint_tools.difference import read_parameters
from transformer_jax.runs.outcome import TrainingDiverged
from transformer_jax.runs.record import RunRecord
from transformer_jax.runs.run_directory import RunDirectory, RunIsBusy
from transformer_jax.runs.shared_programs import SharedPrograms
from transformer_jax.runs.train import train_vectorized
from transformer_jax.sequence_types import batch_shape
from transformer_jax.training import vectorized
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.vectorized import _of_each

MEMBERS = [
    {"seed": 4},
    {"seed": 5, "optimizer": {"learning_rate": 3e-3}, "training": {"label_smoothing": 0.3}},
    {"seed": 6, "model": {"dropout": 0.4}, "training": {"num_updates": 9, "evaluate_every": 3}},
    {"seed": 7, "optimizer": {"b1": 0.7, "epsilon": 1e-6, "warmup_updates": 2}},
]


def member(cache: Path, changes: dict) -> ExperimentConfig:
    settings = tiny_settings(cache, num_updates=4, evaluate_every=2, checkpoint_every=2, log_every=1)
    settings["data"]["seed"] = 1
    settings["batching"]["num_buckets"] = 2
    for key, value in changes.items():
        settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) else value
    return from_dict(settings)


# What a single run compiles, and what so many at once do, is compiled once.
SHARED = SharedPrograms()


def together(cache, folder: Path, changes=MEMBERS, should_stops=None, on_end=lambda place, ending: None):
    configs = [member(cache, each) for each in changes]
    folders = [folder / str(place) for place in range(len(changes))]
    should_stops = should_stops or [lambda step, found: False] * len(changes)
    return train_vectorized(configs, folders, should_stops, SHARED, on_end)


def parameters(folder: Path, step: int) -> list[np.ndarray]:
    assert RunDirectory(folder).checkpoint_steps()[-1] == step
    return list(read_parameters(RunDirectory(folder), "last")[1].values())


def assert_same(one: Path, two: Path, step: int) -> None:
    for left, right in zip(parameters(one, step), parameters(two, step), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-3, atol=2e-5)
    for left, right in zip(metrics_of(one), metrics_of(two), strict=True):
        losses = [{key: value for key, value in each.items() if "loss" in key} for each in (left, right)]
        assert left.keys() == right.keys()
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.fixture(scope="module")
def alone(cache, tmp_path_factory) -> Path:
    """Every member trained by itself, on one device."""
    folder = tmp_path_factory.mktemp("alone")
    for place, changes in enumerate(MEMBERS):
        train(member(cache, changes), folder / str(place), shared=SHARED)
    return folder


@pytest.mark.slow
def test_each_comes_out_as_it_would_alone_and_goes_on_when_others_have_ended(cache, alone, tmp_path):
    endings = together(cache, tmp_path)
    assert [(ending.step, ending.reason) for ending in endings] == [(4, "finished")] * 2 + [
        (9, "finished"),
        (4, "finished"),
    ]
    for place, ending in enumerate(endings):
        assert_same(tmp_path / str(place), alone / str(place), ending.step)
        assert json.loads((tmp_path / str(place) / "outcome.json").read_text())["step"] == ending.step
    first, second = (parameters(tmp_path / str(place), 4) for place in (0, 1))
    assert not np.array_equal(first[0], second[0])


@pytest.mark.slow
def test_what_is_interrupted_goes_on_together(cache, alone, tmp_path, monkeypatch):
    original = RunRecord.log

    def interrupting(self, step, *rest):
        if step == 3 and self.directory.path.name == "0":
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, step, *rest)

    monkeypatch.setattr(RunRecord, "log", interrupting)
    first: list = []
    with pytest.raises(KeyboardInterrupt):
        together(cache, tmp_path, on_end=lambda place, ending: first.append(ending))
    monkeypatch.undo()
    assert len(first) == len(MEMBERS)
    assert {ending.reason for ending in first} == {"interrupted"}
    assert len({ending.step for ending in first}) == 1
    for place, ending in enumerate(together(cache, tmp_path)):
        assert ending.reason == "finished"
        assert_same(tmp_path / str(place), alone / str(place), ending.step)


@pytest.mark.slow
def test_one_that_diverges_or_is_stopped_ends_by_itself(cache, alone, tmp_path, capfd):
    changes = [{**MEMBERS[0], "optimizer": {"learning_rate": 2e9}}, MEMBERS[1], MEMBERS[2]]
    should_stops = [lambda step, found: False, lambda step, found: step == 2, lambda step, found: False]
    told: list = []
    endings = together(
        cache, tmp_path, changes, should_stops, lambda place, _: told.append((place, folders_in_use(tmp_path)))
    )
    assert isinstance(endings[0], TrainingDiverged)
    assert "the validation loss is nan" in str(endings[0])
    assert told == [(0, [0, 1, 2]), (1, [1, 2]), (2, [2])]
    assert not (tmp_path / "0" / "outcome.json").exists()
    assert [(ending.step, ending.reason) for ending in endings[1:]] == [(2, "stopped"), (9, "finished")]
    assert_same(tmp_path / "2", alone / "2", 9)
    assert "[2] update 9: validation" in capfd.readouterr().err


def folders_in_use(folder: Path) -> list[int]:
    used = []
    for each in sorted(folder.iterdir()):
        try:
            with RunDirectory(each).locked():
                pass
        except RunIsBusy:
            used.append(int(each.name))
    return used


@pytest.mark.slow
def test_who_asks_to_stop_while_an_end_is_told_is_heard(cache, alone, tmp_path):
    """All have ended by then: nothing else says that there was a signal."""
    shutil.copytree(alone, tmp_path, dirs_exist_ok=True)
    told: list = []

    def on_end(place, ending):
        told.append(ending.reason)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        together(cache, tmp_path, MEMBERS[:2], on_end=on_end)
    assert told == ["finished"] * 2


@pytest.mark.slow
def test_several_on_a_device_are_updated_as_each_would_be_alone(cache, monkeypatch):
    """One after another, and by ``vmap`` as where there is no CPU; on two devices, of which the second has one too many."""
    config = member(cache, {})
    program = SHARED.program_of(config, SHARED.tokenizers_of(config, RunDirectory(cache / "none")), one_device())
    batch, hyperparameters = next(program.training_data.batches(0)), hyperparameters_of(config)
    states = [program.update.initial_state(seed) for seed in (1, 2, 3)]
    step = jax.jit(program.update.step)
    alone = [step(state, batch, jax.tree.map(jnp.float32, hyperparameters)) for state in states]
    for rule in (_of_each, lambda step, platform: _of_each(step, "gpu")):
        monkeypatch.setattr(vectorized, "_of_each", rule)
        joined = vectorized.VectorizedUpdate(program.update, 3, jax.devices()[:2])
        compiled = joined.lower(batch_shape(*batch.source.ids.shape, batch.target.ids.shape[1])).compile()
        found, metrics = compiled(
            joined.join(states), joined.put_batch(batch), joined.put_hyperparameters([hyperparameters] * 3)
        )
        metrics = jax.device_get(metrics)
        for place, (state, report) in enumerate(alone):
            pairs = (joined.state_of(found, place), state), (joined.metrics_of(metrics, place), report)
            for one, two in pairs:
                for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
                    np.testing.assert_allclose(left, right, rtol=2e-3, atol=2e-5)


@pytest.mark.slow
def test_what_does_not_stand_at_the_same_update_or_has_other_data_is_refused(cache, alone, tmp_path):
    shutil.copytree(alone / "0", tmp_path / "0")
    before = {file: file.read_bytes() for file in (tmp_path / "0").glob("*.json*")}
    with pytest.raises(ConfigError, match="are at different updates"):
        together(cache, tmp_path, MEMBERS[:2])
    assert {file: file.read_bytes() for file in (tmp_path / "0").glob("*.json*")} == before
    assert tmp_path / "0" / "outcome.json" in before
    with pytest.raises(ConfigError, match="data, tokenizers or models are not the same"):
        together(cache, tmp_path / "new", [MEMBERS[0], {"data": {"generated_pairs": 100, "seed": 1}}])
    assert not list(tmp_path.glob("new/*/*.json*")) + list(tmp_path.glob("1/*.json*"))
    # Nothing of it is left open: it goes on as it is.
    shutil.copytree(alone / "1", tmp_path / "1", dirs_exist_ok=True)
    assert [ending.step for ending in together(cache, tmp_path, MEMBERS[:2])] == [4, 4]


def one_device():
    return make_mesh(member(Path(), {}).mesh, jax.devices()[:1])
