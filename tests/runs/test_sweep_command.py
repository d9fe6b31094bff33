"""Sweeps through the command line, with real runs: stopped, or with a worker killed, in the middle."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from postgresql import postgresql_server
from process_environment import process_environment
from run_settings import UPDATES, tiny_settings

SWEEP = """
from transformer_jax.tools.sweeps.definition import Sweep

def get_sweep():
    rows = {"base": {}, "slow": {"optimizer.learning_rate": 1e-3}}
    return Sweep(config="recipe.py", rows=rows, seeds=(0, 1), overrides={"data.seed": 0}, metric="validation/loss")
"""


@pytest.mark.slow
def test_a_sweep_that_is_stopped_goes_on(tmp_path):
    settings = tiny_settings(tmp_path / "cache", evaluate_every=4, checkpoint_every=4)
    (tmp_path / "recipe.py").write_text(f"def get_config():\n    return {settings!r}\n")
    (tmp_path / "sweep.py").write_text(SWEEP)
    command = [sys.executable, "-m", "transformer_jax", "sweep", "--sweep=sweep.py", "--workdir=out", "--workers=1"]
    options = {
        "cwd": tmp_path,
        "env": process_environment(),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }

    first = subprocess.Popen(command, **options)
    await_validation(tmp_path / "out/trials/0000/metrics.jsonl", first)
    first.send_signal(signal.SIGINT)
    said = first.communicate(timeout=240)[0]
    assert first.returncode == 130, said
    assert "the same command resumes" in said

    # What was begun is alone where it is; of the others two go together.
    second = subprocess.run([*command, "--vectorize=2"], **options, timeout=400, check=False)
    assert second.returncode == 0, second.stdout
    trials = list(csv.DictReader((tmp_path / "out/leaderboard.csv").read_text().splitlines()))
    assert sorted((trial["row"], trial["seed"]) for trial in trials) == [
        *(("base", "0"), ("base", "1"), ("slow", "0"), ("slow", "1"))
    ]
    assert {trial["state"] for trial in trials} == {"complete"}
    losses = [float(trial["validation/loss"]) for trial in trials]
    assert losses == sorted(losses)
    for trial in trials:
        records = [json.loads(line) for line in (Path(trial["folder"]) / "metrics.jsonl").read_text().splitlines()]
        assert max(record["step"] for record in records) == UPDATES
    starts = [len(json.loads((tmp_path / f"out/trials/{number:04d}/run.json").read_text())) for number in range(4)]
    assert sum(starts) in (4, 5), "at most the trial that was stopped was begun twice"
    told = next((tmp_path / "out/workers").iterdir()).read_text()
    assert re.search(r"\[000\d\] update 12: validation", told), "none was trained beside another"
    assert (tmp_path / "out/history.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_a_study_in_postgresql_nothing(tmp_path):
    settings = tiny_settings(tmp_path / "cache", num_updates=400, evaluate_every=100, checkpoint_every=50)
    (tmp_path / "recipe.py").write_text(f"def get_config():\n    return {settings!r}\n")
    (tmp_path / "sweep.py").write_text(SWEEP.replace("(0, 1)", "(0, 1, 2)"))
    with postgresql_server() as storage:
        command = [sys.executable, "-m", "transformer_jax", "sweep", "--sweep=sweep.py", "--workdir=out", "--workers=3"]
        sweep = subprocess.Popen(
            [*command, f"--storage={storage}", "--grace_seconds=15"],
            cwd=tmp_path,
            env=process_environment(cached=False),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        await_validation(tmp_path / "out/trials/0000/metrics.jsonl", sweep)
        victim = trains_in(tmp_path / "out/trials/0000", sweep)
        os.kill(victim, signal.SIGKILL)
        said = sweep.communicate(timeout=400)[0]
    assert sweep.returncode == 0, said
    assert f"ended with status -{signal.SIGKILL:d}" in said
    trials = list(csv.DictReader((tmp_path / "out/leaderboard.csv").read_text().splitlines()))
    assert [trial["state"] for trial in trials] == ["complete"] * 6
    assert len({trial["folder"] for trial in trials}) == 6
    starts = [len(json.loads((Path(trial["folder"]) / "run.json").read_text())) for trial in trials]
    assert sorted(starts) == [1] * 5 + [2], "only that of the killed worker was begun twice"
    resumed = [
        log.read_text() for log in (tmp_path / "out/workers").iterdir() if "resumed at update" in log.read_text()
    ]
    assert len(resumed) == 1


def await_validation(metrics: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.is_file() and "validation/loss" in metrics.read_text():
            return
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate()[0])


def trains_in(folder: Path, sweep: subprocess.Popen) -> int:
    """The worker of the sweep that has files of the run open."""
    for worker in Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children").read_text().split():
        if any(folder in file.readlink().parents for file in Path(f"/proc/{worker}/fd").iterdir()):
            return int(worker)
    raise AssertionError(f"nobody trains in {folder}")
