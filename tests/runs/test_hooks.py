"""The order of the hooks, and when they are called."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from run_settings import tiny_config

from transformer_jax.runs import hooks
from transformer_jax.runs.hooks import Hooks
from transformer_jax.runs.run import Counters, Position


@pytest.fixture
def calls(monkeypatch):
    """The names of the core's hooks in the order of their calls."""
    found = []
    for name in ("validate", "write_checkpoint"):
        monkeypatch.setattr(hooks, name, lambda run, position, name=name: found.append(name))
    monkeypatch.setattr(hooks, "count", lambda run, position: None)
    monkeypatch.setattr(hooks, "Log", lambda run, position: lambda run, position: None)
    return found


def hooks_of(cache, *callbacks):
    run, position = MagicMock(config=tiny_config(cache)), Position(None, 0, Counters(num_updates=12))
    return Hooks(run, position, callbacks), position


def test_a_model_is_validated_before_it_is_saved(cache, calls):
    of_run, _ = hooks_of(cache)
    assert of_run.need_state(6) and not of_run.need_state(5)
    of_run.call(6, SimpleNamespace(), has_state=True)
    assert calls == ["validate", "write_checkpoint"]


def test_a_callback_that_stops_a_run_before_its_first_update_is_named(cache, calls, capfd):
    def stop_early(run, position):
        position.stop()

    hooks_of(cache, stop_early)[0].begin()
    assert "stop_early ends the run" in capfd.readouterr().err


def test_a_run_that_a_hook_shortens_is_saved_at_once_where_the_state_is_known(cache, calls):
    def shorten(run, position):
        position.change_length(9)

    shorten.needs_state = lambda run, position, number: number == 2
    of_run, position = hooks_of(cache, shorten)
    of_run.call(2, SimpleNamespace(), has_state=of_run.need_state(2))
    assert calls == ["write_checkpoint"] and position.num_updates == 9
