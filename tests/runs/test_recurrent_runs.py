"""Recurrent recipes, made tiny: resumed to the bit, split over devices, and through the commands
that know no model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_settings import tiny_settings
from run_steps import copy_until, parameters_of, train

from transformer_jax.config import ExperimentConfig, MeshConfig, from_dict, resolve, to_dict

RECIPE = Path(__file__).resolve().parents[2] / "configs" / "seq2seq.py"
TINY = {"d_embedding": 8, "d_hidden": 8, "d_attention": 8, "compute_dtype": "float32"}


def config_of(name: str, cache: Path, num_updates: int) -> ExperimentConfig:
    settings = tiny_settings(cache, num_updates=num_updates, evaluate_every=4, checkpoint_every=2)
    settings["model"] = to_dict(resolve(f"{RECIPE}:{name}"))["model"] | TINY
    settings["decoding"]["beam_width"] = 2
    return from_dict(settings)


def trained_state(config: ExperimentConfig, folder: Path, devices: int = 1) -> list:
    assert train(config, folder, devices).step == config.training.num_updates
    return parameters_of(folder, config, config.training.num_updates, devices)


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory):
    """The folder of a run that nothing happened to, and its last state."""
    folder = tmp_path_factory.mktemp("bahdanau")
    return folder, trained_state(config_of("bahdanau", cache, 4), folder)


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_as_one_that_was_not(whole, cache, tmp_path):
    folder, state = whole
    found = trained_state(config_of("bahdanau", cache, 4), copy_until(2, folder, tmp_path / "stopped"))
    for one, two in zip(state, found, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_split_over_devices_it_is_the_same_training(cache, tmp_path):
    config = config_of("location_sensitive", cache, 2)
    config = replace(config, model=replace(config.model, dropout=0.0, embedding_dropout=0.0))
    expected = trained_state(config, tmp_path / "one")
    found = trained_state(replace(config, mesh=MeshConfig(data=2, fsdp=2, tensor=2)), tmp_path / "split", devices=8)
    for one, two in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)
