"""Sweeps through the command line, with real runs: stopped, or with a worker killed, in the middle
of a trial."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from postgresql import postgresql_server
from process_environment import process_environment
from run_settings import tiny_settings

from transformer_jax.tools.study import worker_processes
from transformer_jax.tools.study.sweeps import STORAGE_VARIABLE
from transformer_jax.tools.study.worker_processes import run_workers

SWEEP = """
from transformer_jax.tools.study.sweeps import Sweep

def get_sweep():
    return Sweep(config="recipe.py", seeds={seeds}, overrides={{"data.seed": 0}}, metric="validation/loss")
"""


def write_sweep(folder: Path, seeds: tuple[int, ...], **training: int) -> list[str]:
    """A command that sweeps over seeds."""
    settings = tiny_settings(folder / "cache", **training)
    (folder / "recipe.py").write_text(f"def get_config():\n    return {settings!r}\n")
    (folder / "sweep.py").write_text(SWEEP.format(seeds=seeds))
    return [sys.executable, "-m", "transformer_jax", "sweep", "--sweep=sweep.py", "--workdir=out"]


def started(command: list[str], folder: Path, **variables: str) -> subprocess.Popen:
    environment = process_environment(cached=False, **variables)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes)


def await_checkpoint(run: Path, process: subprocess.Popen) -> None:
    """Returns once the run has saved after an update, and is still going on."""
    while process.poll() is None:
        if any(int(folder.name) > 0 for folder in run.glob("checkpoints/[0-9]*") if folder.name.isdigit()):
            return
        time.sleep(0.05)
    raise AssertionError(process.communicate()[0])


def trials_of(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "out/leaderboard.csv").read_text().splitlines()))


def starts_of(folder: Path, number: int) -> int:
    return len(json.loads((folder / f"out/trials/{number:04d}/run.json").read_text()))


def test_a_killed_worker_is_replaced_and_one_that_fails_is_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(worker_processes, "POLL_SECONDS", 0.01)
    mark = tmp_path / "mark"
    kill_once = f"if [ -e {mark} ]; then exit 7; fi; touch {mark}; kill -KILL $$"
    assert run_workers(["sh", "-c", kill_once], [{}], tmp_path, int) == [7]
    assert capsys.readouterr().err == "worker 0 was ended by SIGKILL; another one replaces it\n"
    # Not for ever: the number of the last one is the status.
    counted = f"echo x >> {mark}; kill -KILL $$"
    assert run_workers(["sh", "-c", counted], [{}], tmp_path, int) == [-signal.SIGKILL]
    assert mark.read_text().count("x") == 1 + worker_processes.REPLACEMENTS
    assert run_workers(["sh", "-c", "kill -TERM $$"], [{}], tmp_path, int) == [-signal.SIGTERM]


def test_workers_survive_a_hangup_under_nohup(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        hang_up = f"import os, time; os.kill({os.getpid()}, {signal.SIGHUP:d}); time.sleep(0.5)"
        assert run_workers([sys.executable, "-c", hang_up], [{}], tmp_path, lambda: None) == [0]
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_the_trial_of_a_killed_worker_is_finished_by_another_from_its_checkpoint(where, tmp_path):
    command = write_sweep(tmp_path, (0, 1, 2), num_updates=300, evaluate_every=100, checkpoint_every=20)
    with postgresql_server() if where == "postgresql" else nullcontext("") as url:
        sweep = started([*command, "--workers=2", "--grace_seconds=30"], tmp_path, **{STORAGE_VARIABLE: url})
        await_checkpoint(tmp_path / "out/trials/0000", sweep)
        os.kill(trains_in(tmp_path / "out/trials/0000", sweep), signal.SIGKILL)
        said = sweep.communicate()[0]
    assert sweep.returncode == 0 and "was ended by SIGKILL; another one replaces it" in said, said
    assert (tmp_path / "out/sweep_files/sweep.py").read_text() == (tmp_path / "sweep.py").read_text()
    assert [trial["state"] for trial in trials_of(tmp_path)] == ["complete"] * 3
    assert [starts_of(tmp_path, number) for number in range(3)] == [2, 1, 1]
    logs = [log.read_text() for log in (tmp_path / "out/workers").iterdir()]
    assert ["resumed at update" in log for log in logs].count(True) == 1
    assert sum(log.count("trial 0: ") for log in logs) == 2


def trains_in(folder: Path, sweep: subprocess.Popen) -> int:
    """The worker of the sweep that has files of the run open."""
    for worker in Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children").read_text().split():
        if any(folder in file.readlink().parents for file in Path(f"/proc/{worker}/fd").iterdir()):
            return int(worker)
    raise AssertionError(f"nobody trains in {folder}")
