"""Two processes of four devices each that train, evaluate, stop, die and go on as one."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from run_settings import UPDATES, tiny_config
from run_steps import metrics_of, parameters_of, train, write_recipe

from transformer_jax.config import ExperimentConfig, MeshConfig
from transformer_jax.reporting.metrics_log import read_metrics

pytestmark = pytest.mark.slow

FOR_EVER = 1_000_000


def on_two(config: ExperimentConfig) -> ExperimentConfig:
    """Rows over both processes and over the devices of each, parameters over two devices."""
    return replace(config, mesh=MeshConfig(data=4, fsdp=2, tensor=1))


def launch(*arguments: str, folder: Path) -> list[subprocess.Popen]:
    """The same command twice, as the two processes of one program."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "transformer_jax", *arguments, "--distributed", f"--workdir={folder}"]
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": "2",
    }
    return [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment | {"JAX_PROCESS_ID": str(index)}
        )
        for index in range(2)
    ]


def ends(processes: list[subprocess.Popen], timeout: float = 300) -> list[tuple[int, str]]:
    outputs = [process.communicate(timeout=timeout)[0].decode() for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def train_on_two(config: ExperimentConfig, folder: Path) -> list[subprocess.Popen]:
    return launch("train", f"--config={write_recipe(on_two(config), folder)}", folder=folder)


def wait_for_update(folder: Path, update: int) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if (folder / "metrics.jsonl").is_file() and any(
            record["step"] >= update for record in read_metrics(folder / "metrics.jsonl")
        ):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{folder}: no update {update}")


@pytest.fixture(scope="module")
def pair(cache, tmp_path_factory) -> Path:
    """What two processes trained."""
    folder = tmp_path_factory.mktemp("pair") / "run"
    (first, said), (second, also_said) = ends(train_on_two(tiny_config(cache), folder))
    assert (first, second) == (0, 0), said + also_said
    assert f"finished at update {UPDATES}" in said
    assert "process 1 of 2, 4 of 8 devices" in also_said
    assert "finished" not in also_said, "only the first process talks"
    return folder


def test_two_processes_make_the_updates_of_one(pair, cache, tmp_path):
    config = on_two(tiny_config(cache))
    assert train(config, tmp_path, devices=8).reason == "finished"
    for ours, theirs in zip(metrics_of(tmp_path), metrics_of(pair), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    one_device = tiny_config(cache)
    folders = (pair, tmp_path)
    for left, right in zip(*(parameters_of(folder, one_device, UPDATES) for folder in folders), strict=True):
        np.testing.assert_allclose(np.asarray(left, np.float32), np.asarray(right, np.float32), rtol=2e-3, atol=2e-5)


def test_only_the_first_process_writes_the_files_of_the_run(pair):
    assert not list(pair.glob("*.partial"))
    assert len(json.loads((pair / "run.json").read_text())) == 1
    assert len(list(pair.glob("events.*"))) == 1
    steps = [record["step"] for record in read_metrics(pair / "metrics.jsonl") if "train/loss" in record]
    assert steps == list(range(1, UPDATES + 1))


def test_two_processes_score_as_one_does(pair, tmp_path):
    arguments = "evaluate", "--split=validation", "--examples=0", f"--output={tmp_path / 'two'}"
    (first, said), (second, _) = ends(launch(*arguments, folder=pair))
    assert (first, second) == (0, 0), said
    alone = [*arguments[:-1], f"--output={tmp_path / 'one'}", f"--workdir={pair}"]
    subprocess.run([sys.executable, "-m", "transformer_jax", *alone], check=True, capture_output=True)
    of_two, of_one = (
        [json.loads(file.read_text()) for file in (tmp_path / name).glob("*.json")] for name in ("two", "one")
    )
    assert len(of_two) == 1
    assert of_two[0]["scores"] == of_one[0]["scores"]
    assert of_two[0]["loss"] == pytest.approx(of_one[0]["loss"], rel=1e-5)


def test_interrupted_together_killed_apart_and_resumed_by_one(cache, tmp_path):
    config = tiny_config(cache, num_updates=FOR_EVER, evaluate_every=1000)
    folder = tmp_path / "run"
    processes = train_on_two(config, folder)
    wait_for_update(folder, 4)
    processes[1].send_signal(signal.SIGINT)
    (first, said), (second, also_said) = ends(processes)
    assert (first, second) == (0, 0), said + also_said
    assert "interrupted, everything is saved" in said

    stopped = max(int(entry.name) for entry in (folder / "checkpoints").iterdir() if entry.name.isdigit())
    processes = train_on_two(config, folder)
    wait_for_update(folder, stopped + 4)
    processes[1].kill()
    (first, said), _ = ends(processes, timeout=60)
    assert first not in (0, None)
    assert "another task died" in said
    assert f"resumed at update {stopped}" in said

    reached = max(int(entry.name) for entry in (folder / "checkpoints").iterdir() if entry.name.isdigit())
    assert reached >= stopped
    longer = replace(config, training=replace(config.training, num_updates=reached + 3))
    shutil.copytree(folder, tmp_path / "copy")
    for name in ("run", "copy"):
        assert train(longer, tmp_path / name).step == reached + 3
    assert metrics_of(folder) == metrics_of(tmp_path / "copy")


def test_processes_with_different_settings_are_refused(cache, tmp_path):
    one, other = (
        write_recipe(on_two(replace(tiny_config(cache), seed=seed)), tmp_path / str(seed) / "run") for seed in (0, 1)
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "transformer_jax", "train", f"--config={recipe}", f"--workdir={tmp_path / 'run'}"]
            + ["--distributed"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment | {"JAX_PROCESS_ID": str(index), "XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        )
        for index, recipe in enumerate((one, other))
    ]
    for status, said in ends(processes):
        assert status == 2
        assert "started with different settings" in said


def test_without_a_cluster_the_environment_must_say_who_is_who(cache, tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_COORD")}
    recipe = write_recipe(tiny_config(cache), tmp_path / "run")
    command = [sys.executable, "-m", "transformer_jax", "train", f"--config={recipe}", f"--workdir={tmp_path / 'run'}"]
    ended = subprocess.run([*command, "--distributed"], env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID" in ended.stderr
    environment |= {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "two", "JAX_PROCESS_ID": "0"}
    ended = subprocess.run([*command, "--distributed"], env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "JAX_NUM_PROCESSES is 'two'" in ended.stderr
    assert jax.process_count() == 1
