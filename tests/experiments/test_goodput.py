"""A run under kills, until it ends."""

import random
import subprocess

import pytest


def test_a_run_is_killed_and_started_again_until_it_ends(faults, monkeypatch, tmp_path):
    goodput, waits = faults("goodput"), iter([None, None, 0])

    class Process:
        def __init__(self, command, stdout, stderr):
            assert command[-1] == "--config=quickstart"

        def wait(self, timeout=None):
            if timeout is None:
                return 0
            assert 5 <= timeout <= 15
            if (status := next(waits)) is None:
                raise subprocess.TimeoutExpired("train", timeout)
            return status

        def kill(self):
            pass

    monkeypatch.setattr(goodput.subprocess, "Popen", Process)
    kills, _ = goodput.trained(["--config=quickstart"], tmp_path / "run", 10.0, random.Random(0))
    assert kills == 2
    found = {"goodput": 0.5, "seconds": {"step": 1.0, "lost": 2.5}}
    assert "| 10 | 2 | 8 | 50.0% | 12.5% | 1.0 | 2.5 | 0.0 |" in goodput.table([(10.0, kills, 8.0, found)])


def test_kills_that_come_before_any_update_and_runs_that_are_there_end_it(faults, monkeypatch, tmp_path):
    goodput = faults("goodput")

    class Process:
        def __init__(self, command, stdout, stderr):
            pass

        def wait(self, timeout=None):
            if timeout is not None:
                raise subprocess.TimeoutExpired("train", timeout)

        def kill(self):
            pass

    monkeypatch.setattr(goodput.subprocess, "Popen", Process)
    with pytest.raises(SystemExit, match="no update in 5 starts"):
        goodput.trained([], tmp_path / "run", 1.0, random.Random(0))
    with pytest.raises(SystemExit, match="exists"):
        goodput.trained([], tmp_path, 1.0, random.Random(0))
