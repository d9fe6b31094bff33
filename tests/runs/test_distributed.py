"""Two processes of four devices each that train, evaluate, stop, die and go on as one."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from process_environment import cluster, ends, launch, process_environment
from run_settings import tiny_config
from run_steps import assert_same_run, metrics_of, parameters_of, train, write_recipe

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError, ExperimentConfig, MeshConfig
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runtime import distributed, process_group

FOR_EVER = 1_000_000
# The first, undisturbed run fills the cache, so that no process is killed while it writes there.
CACHED = {"JAX_ENABLE_COMPILATION_CACHE": "true"}
# What a process does to itself while the next update runs on its devices. A recipe is read twice.
DISTURB = """
import os, signal, time
from transformer_jax.runs import hooks
count = vars(hooks).setdefault("count_alone", hooks.count)

def count_and_act(run, position):
    count(run, position)
    if os.environ["JAX_PROCESS_ID"] == {index_by_update}.get(position.number):
        {act}

hooks.count = count_and_act
"""
STOP, KILL = (f"os.kill(os.getpid(), signal.SIG{name})" for name in ("STOP", "KILL"))


def on_two(config: ExperimentConfig) -> ExperimentConfig:
    """Rows over both processes and over the devices of each, parameters over two devices."""
    return replace(config, mesh=MeshConfig(data=4, fsdp=2, tensor=1))


def train_on_two(config: ExperimentConfig, folder: Path, extra: str = "", **variables: str) -> list[subprocess.Popen]:
    return launch("train", f"--config={write_recipe(on_two(config), folder, extra)}", folder=folder, **variables)


def wait_for_update(both: list[subprocess.Popen], folder: Path, update: int) -> None:
    """Kills both processes where the update does not come."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and all(process.poll() is None for process in both):
        if (folder / "metrics.jsonl").is_file() and any(
            record["step"] >= update for record in read_metrics(folder / "metrics.jsonl")
        ):
            return
        time.sleep(0.1)
    for process in both:
        process.kill()
    raise TimeoutError(f"{folder}: no update {update}; {ends(both)}")


@pytest.fixture(scope="module")
def stopped(cache, tmp_path_factory) -> Path:
    """What two processes trained until one of them was asked to stop."""
    folder = tmp_path_factory.mktemp("pair") / "run"
    both = train_on_two(endless(cache), folder)
    wait_for_update(both, folder, 4)
    both[1].send_signal(signal.SIGINT)
    (first, said), (second, also_said) = ends(both)
    assert (first, second) == (143, 130), said + also_said
    assert "everything is saved" in said
    assert "process 1 of 2, 4 of 8 devices" in also_said
    assert "interrupted" not in also_said, "only the first process talks"
    assert not list(folder.glob("*.partial"))
    assert len(json.loads((folder / "run.json").read_text())) == len(list(folder.glob("events.*"))) == 1
    steps = [record["step"] for record in read_metrics(folder / "metrics.jsonl") if "train/loss" in record]
    assert steps == list(range(1, newest(folder) + 1))
    return folder


def endless(cache: Path) -> ExperimentConfig:
    return tiny_config(cache, num_updates=FOR_EVER, evaluate_every=1000)


def until(update: int, config: ExperimentConfig) -> ExperimentConfig:
    return replace(config, training=replace(config.training, num_updates=update))


def wait_until_stopped(process: subprocess.Popen) -> float:
    """Wait until the process is in state T (proc(5)); returns the time."""
    while process.poll() is None:
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return time.monotonic()
        time.sleep(0.1)
    raise AssertionError(ends([process]))


def newest(folder: Path) -> int:
    return max(int(entry.name) for entry in (folder / "checkpoints").iterdir() if entry.name.isdigit())


@pytest.mark.slow
def test_two_processes_make_the_updates_of_one(stopped, cache, tmp_path):
    updates = newest(stopped)
    assert train(on_two(until(updates, endless(cache))), tmp_path, devices=8).reason == "finished"
    ours, theirs = (
        [record for record in metrics_of(folder) if "train/loss" in record] for folder in (tmp_path, stopped)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    folders = (stopped, tmp_path)
    states = (parameters_of(folder, tiny_config(cache), updates) for folder in folders)
    for left, right in zip(*states, strict=True):
        np.testing.assert_allclose(np.asarray(left, np.float32), np.asarray(right, np.float32), rtol=2e-3, atol=2e-5)


@pytest.mark.slow
def test_two_processes_score_as_one_does(stopped, tmp_path):
    arguments = "evaluate", "--split=validation", "--examples=0", f"--output={tmp_path / 'two'}"
    (first, said), (second, _) = ends(launch(*arguments, folder=stopped))
    assert (first, second) == (0, 0), said
    assert main([*arguments[:-1], f"--output={tmp_path / 'one'}", f"--workdir={stopped}"]) == 0
    of_two, of_one = (
        [json.loads(file.read_text()) for file in (tmp_path / name).glob("*.json")] for name in ("two", "one")
    )
    assert len(of_two) == 1
    assert of_two[0]["scores"] == of_one[0]["scores"]
    assert of_two[0]["loss"] == pytest.approx(of_one[0]["loss"], rel=1e-5)


def finite(cache: Path) -> ExperimentConfig:
    """12 updates, checkpoints after every third."""
    return tiny_config(cache, evaluate_every=0, hang_factor=1.0)


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory) -> Path:
    """What two processes trained undisturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    outputs = ends(train_on_two(finite(cache), folder, **CACHED))
    assert [status for status, _ in outputs] == [0, 0], outputs
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hung", "act", "then", "ended"),
    [
        (1, STOP, signal.SIGCONT, 75),
        (0, STOP, signal.SIGCONT, 75),
        (0, STOP, signal.SIGKILL, -9),
        (1, KILL, 0, -9),
        (0, KILL, 0, -9),
        # Its heartbeats continue: the watchdog of each ends it after 60 s, or after the other.
        (0, "time.sleep(1000)", 0, 75),
    ],
)
def test_when_one_hangs_the_other_ends_and_the_same_command_resumes(whole, cache, tmp_path, hung, act, then, ended):
    folder = tmp_path / "run"
    disturbance = DISTURB.format(index_by_update={7: str(hung)}, act=act)
    both = train_on_two(finite(cache), folder, disturbance, **CACHED)
    stopped_at = wait_until_stopped(both[hung]) if act == STOP else 0.0
    ((other, said),) = ends([both[1 - hung]])
    # docs/clusters.md says a minute; a loaded machine has another.
    assert act != STOP or time.monotonic() - stopped_at < 120
    both[hung].send_signal(then)
    ((status, also_said),) = ends([both[hung]])
    assert other == 75, said
    is_asleep = "sleep" in act
    assert "because another one did or hangs" in said or (is_asleep and "no update for 60 s" in said), said
    assert status == ended and (folder / "hang.txt").exists() == is_asleep, also_said
    (first, said), (second, _) = ends(train_on_two(finite(cache), folder, **CACHED))
    assert (first, second) == (0, 0) and "resumed at update" in said, said
    assert_same_run(whole, folder, finite(cache))


@pytest.mark.slow
@pytest.mark.parametrize("full", [1, 0])
def test_a_process_that_cannot_write_ends_and_the_other_too(stopped, cache, tmp_path, full):
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    before = newest(folder)
    both = train_on_two(endless(cache), folder)
    wait_for_update(both, folder, before + 1)
    # As on a full disk; process 0 can still write a few lines of its logs.
    limit = 100 if full else (folder / "metrics.jsonl").stat().st_size + 5000
    resource.prlimit(both[full].pid, resource.RLIMIT_FSIZE, (limit, limit))
    outputs = ends(both)
    assert [status for status, _ in outputs] == ([75, 1] if full else [1, 75]), outputs
    assert "the disk is full" in outputs[full][1]
    assert train(until(before + 3, endless(cache)), folder).step == before + 3


@pytest.mark.slow
def test_two_processes_are_diagnosed_in_one_table(tmp_path):
    (first, said), (second, also_said) = ends(launch("doctor", "--config.mesh.tensor=8", folder=tmp_path))
    assert (first, second) == (0, 0), said + also_said
    assert "8 cpu (cpu) of 2 processes" in said and "(tensor=8)" in said and "8 devices of 2 processes" in said
    assert f"{tmp_path}, seen by 2 processes" in said
    assert "compiled = eager" not in also_said and not list(tmp_path.iterdir())


def test_a_folder_that_not_all_see_and_different_settings_are_refused(tmp_path, monkeypatch):
    distributed.require_shared_folder(tmp_path)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(distributed, "from_first", lambda make, name: make())
    monkeypatch.setattr(distributed, "all_agree", lambda here, name: here)
    distributed.require_shared_folder(tmp_path)
    distributed.require_same("ours", "key", "a problem", "a remedy")
    monkeypatch.setattr(distributed, "all_agree", lambda here, name: False)
    with pytest.raises(ConfigError, match="not all processes see"):
        distributed.require_shared_folder(tmp_path)
    with pytest.raises(ConfigError, match="a problem"):
        distributed.require_same("ours", "key", "a problem", "a remedy")
    assert not list(tmp_path.iterdir())


def test_without_a_cluster_the_environment_must_say_who_is_who(monkeypatch):
    for name in process_group.BY_HAND:
        monkeypatch.delenv(name, raising=False)
    names = "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID"
    # JAX is in use in this process, so that it cannot join any more: the error is JAX's, the advice
    # ours.
    assert jax.process_count() == 1
    with pytest.raises(ConfigError, match=f"--distributed: .*{names}"):
        process_group.join_processes()
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(ConfigError, match=f"JAX_NUM_PROCESSES is 'two'; all of {names}"):
        process_group.join_processes()


GLOO = "UNKNOWN: Gloo all-reduce failed: Connection closed by peer [127.0.0.1]:29095"


def test_a_collective_that_another_process_failed_ends_this_one_with_one_line(monkeypatch, capsys):
    def leave(status: int) -> None:
        raise SystemExit(status)

    with pytest.raises(ValueError, match="Gloo"), process_group.ending_with_others():
        raise ValueError(GLOO)  # A single process has lost no other.
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(process_group.os, "_exit", leave)
    for error in (ValueError("a shape"), ConfigError("--distributed: no heartbeat"), KeyError("Gloo")):
        with pytest.raises(type(error)), process_group.ending_with_others():
            raise error
    with pytest.raises(SystemExit, match="75"), process_group.ending_with_others():
        raise ValueError(GLOO)
    said = capsys.readouterr().err
    assert said.startswith("transformer-jax: process 0 ends")
    assert "same command to all" in said
    assert said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_process_whose_others_never_come_ends_with_a_sentence(index):
    environment = process_environment(TRANSFORMER_JAX_SECONDS_TO_WAIT="2", JAX_PROCESS_ID=str(index), **cluster())
    code = "from transformer_jax.runtime.process_group import join_processes; join_processes()"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 75, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("transformer-jax: --distributed: not all processes came in 2 s")


def run_code(code: str, environment: dict[str, str], index: int) -> subprocess.Popen:
    """Process ``index``, which runs this code when it has joined the others."""
    modules = "distributed", "process_group"
    imports = "; ".join(f"from transformer_jax.runtime.{module} import *" for module in modules)
    code = f"import time; {imports}; join_processes(); {code}"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment | {"JAX_PROCESS_ID": str(index)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.slow
def test_a_process_that_is_started_again_ends_the_others_and_waits_until_they_are_too():
    # Longer than it takes to start it again.
    environment = process_environment(TRANSFORMER_JAX_SECONDS_UNTIL_DEAD="100", **cluster())
    work = "print('joined', flush=True)\nwith ending_with_others(): wait_for_all('work')"
    first, second = (run_code(work, environment, index) for index in range(2))
    assert "joined\n" in iter(lambda: second.stdout.readline().decode(), "")
    second.kill()
    second.communicate()
    again = run_code(work, environment, 1)
    ((status, said),) = ends([first])
    assert status == 75 and "process 0 ends, most likely because another one did" in said and "restarted" in said, said
    outputs = ends([run_code(work, environment, 0), again])
    assert [status for status, _ in outputs] == [0, 0], outputs
