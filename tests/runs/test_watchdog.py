"""A hang is noticed while an update runs, and at no other time."""

import time
from unittest.mock import MagicMock

from transformer_jax.runs.goodput import Clock
from transformer_jax.runs.hooks import hooks_of, watchdog
from transformer_jax.runtime.distributed import STATUS_TO_RESTART


def clock_after(updates: int) -> Clock:
    clock = Clock()
    clock.turn_to("step")
    for _ in range(updates):
        with clock.spend("data_wait"):
            time.sleep(0.001)
    return clock


def ends_of(clock: Clock, tmp_path, factor: float = 2.0, seconds: float = 0.6) -> list[int]:
    ends: list[int] = []
    with watchdog(clock, factor, tmp_path / "hang.txt", ends.append, min_seconds=0.1):
        time.sleep(seconds)
    return ends


def test_an_update_that_hangs_ends_the_process_with_the_stacks(tmp_path, capfd):
    assert ends_of(clock_after(5), tmp_path) == [STATUS_TO_RESTART]
    assert "test_watchdog.py" in (tmp_path / "hang.txt").read_text()
    said = capfd.readouterr().err
    # Other processes than the first have no hang.txt in the run.
    assert "no update for 0 s; the stacks of all threads are in" in said and "test_watchdog.py" in said


def test_validating_and_the_first_update_may_take_long(tmp_path):
    validating = clock_after(5)
    validating.turn_to("evaluation")
    assert ends_of(validating, tmp_path) == []
    assert ends_of(clock_after(1), tmp_path) == []
    assert ends_of(clock_after(5), tmp_path, factor=0.0) == []
    assert not (tmp_path / "hang.txt").exists()


def test_the_check_of_a_large_store_is_no_update(tmp_path):
    ends: list[int] = []
    run = MagicMock(clock=clock_after(5))
    run.data.require_sound = lambda: time.sleep(0.6)
    checks = next(hook for is_due, hook in hooks_of(run, []) if is_due is run.is_estimated_after)
    with watchdog(run.clock, 2.0, tmp_path / "hang.txt", ends.append, min_seconds=0.1):
        checks(run)
    assert ends == [] and run.clock.seconds["checkpoint"] >= 0.6
