"""A run that the tests of commands look at."""

from pathlib import Path

import pytest
from compiled_programs import compiled_once
from run_settings import tiny_settings

from transformer_jax.config import from_dict
from transformer_jax.training_session import train

LEARNING = {"num_updates": 30, "evaluate_every": 10, "checkpoint_every": 10, "log_every": 10}


@pytest.fixture(scope="session")
def programs_folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module", autouse=True)
def programs(programs_folder):
    """Every command compiles the same few programs."""
    with compiled_once(programs_folder, in_processes=True):
        yield


@pytest.fixture(scope="session")
def run(programs_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    settings = tiny_settings(tmp_path_factory.mktemp("cache"), **LEARNING)
    # Eight devices here; the processes below have one, and look at the run all the same.
    settings["mesh"] = {"data": 2, "fsdp": 2, "tensor": 2}
    with compiled_once(programs_folder, in_processes=True):
        assert train(from_dict(settings), str(folder)) == 0
    return folder
