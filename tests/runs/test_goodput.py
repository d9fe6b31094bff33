"""The time sheet of a run, with a clock that the tests turn."""

import json

import pytest

from transformer_jax.config import DataError
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runs import goodput as module
from transformer_jax.runs.goodput import Clock, Goodput


class Time:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def time(self):
        return 1e9 + self.now


@pytest.fixture
def time(monkeypatch):
    time = Time()
    monkeypatch.setattr(module, "time", time)
    return time


def test_a_removed_folder_is_not_made_again(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    goodput, directory = Goodput(folder / "goodput.json", 0, Clock()), RunDirectory(folder)
    folder.rmdir()
    goodput.write(1)
    directory.write_outcome(step=1, reason="failed")
    assert not folder.exists()


def test_every_second_counts_once(tmp_path, time):
    clock = Clock()
    goodput = Goodput(tmp_path / "goodput.json", 0, clock)
    time.now += 5
    clock.turn_to("step")
    time.now += 10
    with clock.spend("evaluation"):
        time.now += 3
        with pytest.raises(ZeroDivisionError), clock.spend("checkpoint"):
            time.now += 1
            _ = 1 / 0
        time.now += 2
    time.now += 20
    goodput.write(7)
    content = json.loads((tmp_path / "goodput.json").read_text())
    expected = {"start_up": 5, "step": 30, "evaluation": 5, "checkpoint": 1, "compile": 0, "data_wait": 0, "lost": 0}
    assert content["seconds"] == expected
    assert goodput.line() == "73% of the time in updates (30.0 s); start up 5.0 s, evaluation 5.0 s, checkpoint 1.0 s"


def test_the_speed_now_is_of_recent_updates_without_compilation(time):
    clock = Clock()

    def update(seconds):
        clock.turn_to("data_wait")
        clock.turn_to("step")
        time.now += seconds
        with clock.spend("compile"):
            time.now += 100

    for _ in range(30):
        update(1.0)
    assert clock.recent_update_seconds() == pytest.approx(1.0)
    for _ in range(20):
        update(4.0)
    assert clock.recent_update_seconds() == pytest.approx(4.0)


@pytest.mark.parametrize(("restored", "kept", "lost"), [(20, 14, 0), (12, 10, 4), (10, 0, 14), (0, 0, 14)])
def test_what_a_crash_costs(tmp_path, time, restored, kept, lost):
    clock = Clock()
    goodput = Goodput(tmp_path / "goodput.json", 0, clock)
    clock.turn_to("step")
    time.now += 10
    goodput.saved(12)
    time.now += 4
    goodput.write(20)
    again = Goodput(tmp_path / "goodput.json", restored, Clock())
    assert (again.seconds()["step"], again.seconds()["lost"]) == (kept, lost)
    (tmp_path / "other.json").write_text('{"seconds": 3}')
    with pytest.raises(DataError, match=r"other\.json"):
        Goodput(tmp_path / "other.json", 0, Clock())


def test_a_kill_while_a_checkpoint_is_written_loses_the_updates_since_the_one_before(tmp_path, time):
    clock = Clock()
    goodput = Goodput(tmp_path / "goodput.json", 0, clock)
    clock.turn_to("step")
    assert goodput.line() == "0% of the time in updates (0.0 s)"
    for number, seconds in ((10, 50), (30, 100)):
        time.now += seconds
        goodput.saved(number)
    time.now += 1
    goodput.write(30)
    again = Goodput(tmp_path / "goodput.json", 10, Clock())
    assert (again.seconds()["step"], again.seconds()["lost"]) == (50, 101)
