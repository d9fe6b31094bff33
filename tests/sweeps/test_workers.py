"""Several workers over one study, in a journal file and in PostgreSQL: every trial ends once, whoever dies."""

import collections
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from optuna.trial import TrialState

from transformer_jax.sweeps.definition import load_sweep
from transformer_jax.sweeps.storage import open_storage
from transformer_jax.sweeps.study import SharedStudy, number_of

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """
from transformer_jax.sweeps.definition import Sweep
from transformer_jax.sweeps.ranges import Choice

def get_sweep():
    rates = Choice(*(0.001 * number for number in range(1, 7)))
    return Sweep(config="configs/quickstart.py", space={"optimizer.learning_rate": rates}, metric="validation/loss")
"""
TRIALS = 6


def program(name: str) -> str | None:
    """A program of PostgreSQL, which Debian keeps out of the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name)


@pytest.fixture
def postgresql():
    """The address of a server of our own."""
    initdb, postgres = program("initdb"), program("postgres")
    if not initdb or not postgres:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    pytest.importorskip("psycopg", reason="the driver is not installed (pip install psycopg[binary])")
    # The server refuses to be run by root.
    user = {"user": "nobody"} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    if user:
        shutil.chown(folder, "nobody")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    subprocess.run([initdb, "-D", folder / "data", "-U", "tester", "-A", "trust"], check=True, **quiet, **user)
    command = [postgres, "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
    server = subprocess.Popen([*command, "-c", "fsync=off"], **quiet, **user)
    try:
        await_port(port)
        yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
        shutil.rmtree(folder)


def await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not start")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["journal", "postgresql"])
def test_every_trial_ends_once_though_a_worker_is_killed(where, tmp_path, request):
    storage = request.getfixturevalue("postgresql") if where == "postgresql" else str(tmp_path / "study.journal")
    sweep = tmp_path / "sweep.py"
    sweep.write_text(SWEEP)
    arguments = [sys.executable, str(Path(__file__).with_name("pretend_worker.py")), str(sweep), storage, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    workers = [subprocess.Popen([*arguments, "0.4", "3"], env=environment, cwd=ROOT) for _ in range(3)]
    victim = workers[0]
    try:
        await_progress_of(tmp_path, trials=3)
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
        assert [worker.wait(240) for worker in workers[1:]] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()

    events = (tmp_path / "events.txt").read_text().split("\n")[:-1]
    ended = collections.Counter(event.split()[1] for event in events if event.startswith("ended"))
    assert ended == {f"{number:04d}": 1 for number in range(TRIALS)}
    taken_up = [event for event in events if event.startswith("began") and not event.endswith(" at 1")]
    assert len(taken_up) == 1

    opened = open_storage(storage)
    study = SharedStudy(load_sweep(str(sweep)), opened, "pretended")
    trials = study.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * TRIALS
    assert [number_of(trial) for trial in trials] == list(range(TRIALS))
    assert len(study.study.trials) == TRIALS + 1, "the trial of the dead worker was begun twice, no other was"
    assert len({trial.params["optimizer.learning_rate"] for trial in trials}) == TRIALS
    if where == "postgresql":
        opened._backend.engine.dispose()


def await_progress_of(workdir: Path, trials: int) -> None:
    """Returns once so many trials are in the middle."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        files = list(workdir.glob("trials/*/metrics.jsonl"))
        if sum(len(file.read_text().split("\n")) > 2 for file in files) >= trials:
            return
        time.sleep(0.05)
    raise TimeoutError("the workers made no progress")
