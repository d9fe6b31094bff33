"""Starting runs of a few seconds, here or in a process of their own, and comparing them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from process_environment import process_environment
from run_settings import UPDATES

from transformer_jax.checkpoints.reader import CheckpointReader, on_host
from transformer_jax.commands.train import train_and_report
from transformer_jax.config import ExperimentConfig, to_json
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.selection import chosen_step
from transformer_jax.runs import trainer
from transformer_jax.runs.initial_state import ParametersFromElsewhere, find_parameters
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run import Outcome
from transformer_jax.runs.starting import write_run_directory
from transformer_jax.runs.train_run import require_same_run
from transformer_jax.tasks.new_tokenizers import tokenizers_for_training
from transformer_jax.tasks.run_tokenizers import tokenizers_to_json
from transformer_jax.tasks.task import Task, task_class
from transformer_jax.training.parameters import named_leaves
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.state import TrainState
from transformer_jax.training.update import Update

SPEEDS = ("speed/", "host/", "validation/search_tokens_per_second")


def read_parameters(run: Path, which: str) -> dict[str, Any]:
    """The parameters of a checkpoint by path, in host memory."""
    directory = RunDirectory(run)
    step = chosen_step(directory, which)
    checkpoints = CheckpointReader(directory.checkpoints)
    return named_leaves(checkpoints.restore_params(step, on_host(checkpoints.shapes(step))))


@contextmanager
def on_devices(count: int) -> Iterator[None]:
    """Runs that begin inside have so many of the fake devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "make_mesh", lambda config: make_mesh(config, jax.devices()[:count]))
        yield


def train(config: ExperimentConfig, folder: Path, devices: int = 1, **options: Any) -> Outcome:
    with on_devices(devices):
        return trainer.run_training(config, folder, **options)


def task_and_update(config: ExperimentConfig, folder: Path, devices: int = 1) -> tuple[Task, Update]:
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    own = task_class(config.task)
    task = own(config, tokenizers_for_training(config, RunDirectory(folder), own), mesh)
    return task, Update(config, task.objective.loss, task.objective.init_params, mesh, task.objective.update_rule)


def initial_state(
    config: ExperimentConfig, folder: Path, devices: int = 1
) -> tuple[TrainState, ParametersFromElsewhere | None, Task, Update]:
    """The first state of a run, the source of its parameters, its task and its update."""
    task, update = task_and_update(config, folder, devices)
    source = find_parameters(config.init, update.state_shapes.params, task.tokenizers)
    return update.initial_state(config.seed, source.put_into if source else None), source, task, update


def write_untrained(config: ExperimentConfig, folder: Path) -> Path:
    """The folder of a run with a checkpoint of its first parameters, and without an optimizer
    state."""
    state, _, task, _ = initial_state(config, folder)
    progress = {"config": to_json(config), "data": dict(task.identity), "counters": {}}
    progress["tokenizer"] = tokenizers_to_json(task.tokenizers)
    return write_run_directory(folder, config, task.tokenizers, 0, state.params, progress).path


def metrics_of(folder: Path) -> list[dict]:
    """Everything that was measured, but how fast."""
    records = read_metrics(folder / "metrics.jsonl")
    return [{key: value for key, value in record.items() if not key.startswith(SPEEDS)} for record in records]


def parameters_of(folder: Path, config: ExperimentConfig, step: int, devices: int = 1) -> list[np.ndarray]:
    _, update = task_and_update(config, folder, devices)
    state, _ = CheckpointReader(folder / "checkpoints").restore(step, update.state_shapes)
    return jax.tree.leaves(jax.device_get(state))


def assert_same_run(one: Path, two: Path, config: ExperimentConfig) -> None:
    assert metrics_of(one) == metrics_of(two)
    for left, right in zip(*(parameters_of(folder, config, UPDATES) for folder in (one, two)), strict=True):
        np.testing.assert_array_equal(left, right)


def copy_until(update: int, run: Path, target: Path) -> Path:
    """The folder as it would be had the run been killed right after the checkpoint of
    ``update``."""
    shutil.copytree(run, target)
    for checkpoint in (target / "checkpoints").iterdir():
        if checkpoint.name.isdigit() and int(checkpoint.name) > update:
            shutil.rmtree(checkpoint)
    return target


def write_recipe(config: ExperimentConfig, folder: Path, extra: str = "") -> Path:
    """A recipe of these settings, beside the folder of the run; ``extra``: code at its end."""
    recipe = folder.parent / "recipe.py"
    recipe.parent.mkdir(parents=True, exist_ok=True)
    get_config = f"def get_config():\n    return ConfigDict({to_json(config)['config']!r})"
    recipe.write_text(f"from ml_collections import ConfigDict\n\n{get_config}\n{extra}")
    return recipe


def start(folder: Path, config: ExperimentConfig, address: str = "") -> subprocess.Popen:
    """``train`` in a process of its own, with what the tests run under; in ``folder`` or at an
    address."""
    recipe = write_recipe(config, folder)
    command = [sys.executable, "-m", "transformer_jax", "train", f"--config={recipe}", f"--workdir={address or folder}"]
    environment = process_environment(cached=False)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


def finished(process: subprocess.Popen) -> tuple[int, str]:
    output = process.communicate(timeout=300)[0].decode()
    return process.returncode, output


def session(config: ExperimentConfig, folder: Path) -> int:
    """What the command does."""
    require_same_run(config, str(folder))
    return train_and_report(config, str(folder))
