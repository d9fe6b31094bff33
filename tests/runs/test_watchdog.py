"""A hang is noticed while an update runs, and at no other time; the tests turn the clock."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from transformer_jax.runs import goodput, hooks
from transformer_jax.runs.goodput import Clock
from transformer_jax.runtime.process_group import STATUS_TO_RESTART


@pytest.fixture
def ends(monkeypatch, tmp_path):
    """A function: how the watchdog ends a process whose clock has counted so many seconds as one
    kind since updates of 1 s."""
    now = [100.0]
    for module in (goodput, hooks):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    @contextmanager
    def looking_once(watch, name):
        looks = iter([False, True])
        watch(SimpleNamespace(wait=lambda seconds: next(looks)))
        yield

    monkeypatch.setattr(hooks, "in_background", looking_once)

    def ends(seconds, kind="step", updates=5, factor=2.0):
        clock, found = Clock(), []
        clock.turn_to("step")
        for _ in range(updates):
            with clock.spend("data_wait"):
                now[0] += 1
        clock.turn_to(kind)
        now[0] += seconds
        with hooks.watchdog(clock, factor, tmp_path / "hang.txt", found.append):
            return found

    return ends


def test_an_update_that_hangs_ends_the_process_with_the_stacks(ends, tmp_path, capfd):
    assert ends(61) == [STATUS_TO_RESTART]
    assert "test_watchdog.py" in (tmp_path / "hang.txt").read_text()
    said = capfd.readouterr().err
    # Other processes than the first have no hang.txt in the run.
    assert "no update for 60 s; the stacks of all threads are in" in said and "test_watchdog.py" in said


def test_a_checkpoint_that_hangs_ends_the_process_after_an_hour(ends, capfd):
    assert ends(3599, "checkpoint") == []
    assert ends(3601, "checkpoint", updates=1) == [STATUS_TO_RESTART]
    assert "no checkpoint for 3600 s" in capfd.readouterr().err


def test_validating_and_the_first_update_may_take_long(ends, tmp_path):
    assert ends(59) == ends(99, factor=100.0) == ends(1e6, "evaluation") == ends(1e6, factor=0.0) == []
    assert ends(1e6, updates=1) == []
    assert not (tmp_path / "hang.txt").exists()
