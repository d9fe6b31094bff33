"""The time sheet of a run, with a clock that the tests turn."""

import json

import pytest

from transformer_jax.config import ConfigError, DataError
from transformer_jax.runs import goodput as module
from transformer_jax.runs.goodput import Goodput
from transformer_jax.runs.profiler import ProfiledSteps


class Clock:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_every_second_counts_once(tmp_path, clock):
    sheet = Goodput(tmp_path / "goodput.json", 0)
    clock.now += 5
    sheet.turn_to("step")
    clock.now += 10
    with sheet.spend("evaluation"):
        clock.now += 3
        with sheet.spend("checkpoint"):
            clock.now += 1
        clock.now += 2
    clock.now += 20
    sheet.write(7)
    seconds = json.loads((tmp_path / "goodput.json").read_text())["seconds"]
    expected = {"start_up": 5, "step": 30, "evaluation": 5, "checkpoint": 1, "compile": 0, "data_wait": 0, "lost": 0}
    assert seconds == expected
    assert sheet.share("step") == pytest.approx(30 / 41)
    assert sheet.line() == "73% of the time in updates (30.0 s); start up 5.0 s, evaluation 5.0 s, checkpoint 1.0 s"


def test_of_trainings_at_once_each_counts_its_part_from_the_start(tmp_path, clock):
    started = clock.now
    sheets = []
    for number in range(4):
        clock.now += 1
        sheets.append(Goodput(tmp_path / f"{number}.json", 0, started, runs=4))
    clock.now += 4
    for sheet in sheets:
        sheet.turn_to("step")
    clock.now += 10
    for sheet in sheets[1:]:
        sheet.share_with(3)
    sheets[0].write(5)
    clock.now += 30
    for sheet in sheets[1:]:
        sheet.write(9)
    assert [sheet.seconds["start_up"] for sheet in sheets] == [2.0] * 4
    assert [sheet.seconds["step"] for sheet in sheets] == [2.5, *[12.5] * 3]
    assert sum(sum(sheet.seconds.values()) for sheet in sheets) == clock.now - started


@pytest.mark.parametrize(("restored", "kept", "lost"), [(20, 14, 0), (10, 10, 4)])
def test_what_a_crash_costs(tmp_path, clock, restored, kept, lost):
    sheet = Goodput(tmp_path / "goodput.json", 0)
    sheet.turn_to("step")
    clock.now += 10
    sheet.turn_to("step")
    sheet.saved()
    clock.now += 4
    sheet.write(20)
    again = Goodput(tmp_path / "goodput.json", restored)
    assert (again.seconds["step"], again.seconds["lost"]) == (kept, lost)


def test_a_file_that_is_no_time_sheet(tmp_path):
    (tmp_path / "goodput.json").write_text('{"seconds": 3}')
    with pytest.raises(DataError, match=r"goodput\.json"):
        Goodput(tmp_path / "goodput.json", 0)


def test_updates_to_trace():
    assert ProfiledSteps.parse("20:24") == (20, 24)
    for wrong in ("", "20", "20:", "a:b", "5:4", "0:3", "-1:3"):
        with pytest.raises(ConfigError, match="--profile_steps"):
            ProfiledSteps.parse(wrong)
