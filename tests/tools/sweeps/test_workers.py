"""Several workers over one study, in a journal file and in PostgreSQL: every trial ends once, whoever dies."""

import collections
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from optuna.trial import TrialState
from postgresql import postgresql_server

from transformer_jax.tools.sweeps.definition import load_sweep
from transformer_jax.tools.sweeps.storage import open_storage
from transformer_jax.tools.sweeps.study import SharedStudy, given_point, number_of

ROOT = Path(__file__).resolve().parents[3]
SWEEP = """
from transformer_jax.tools.sweeps.definition import Sweep
from transformer_jax.tools.sweeps.ranges import Choice

def get_sweep():
    rates = Choice(*(0.001 * number for number in range(1, 7)))
    return Sweep(config="configs/quickstart.py", space={"optimizer.learning_rate": rates}, metric="validation/loss")
"""
TRIALS = 6


@pytest.fixture
def postgresql():
    with postgresql_server() as address:
        yield address


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
    assert len({given_point(trial)["optimizer.learning_rate"] for trial in trials}) == TRIALS
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
