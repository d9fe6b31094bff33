"""The watch on the time budget of a run."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from run_settings import tiny_config
from run_steps import copy_until, metrics_of, on_devices

from transformer_jax.runs.run import Counters, Position, Results
from transformer_jax.runs.train_run import train_run
from transformer_jax.tools.sizing import budget
from transformer_jax.tools.sizing.budget import KeepToBudget, affordable_updates


def train_in_budget(config, folder):
    with on_devices(1):
        return train_run(config, folder)


@pytest.mark.parametrize(
    ("spent", "seconds_per_update", "current", "length"),
    [
        (100, 1.0, 500, 500),  # 500 s, as planned
        (100, 1.02, 500, 500),  # misses the budget by less than the tolerance
        (100, 2.0, 500, 300),  # 400 s pay 200 more updates
        (100, 0.5, 300, 700),  # faster than it was: longer, at most the limit
        (600, 2.0, 500, 101),  # nothing is left: one more, which is validated
    ],
)
def test_a_run_ends_when_its_budget_does(spent, seconds_per_update, current, length):
    assert affordable_updates(100, spent, seconds_per_update, 500, current, 700) == length


@pytest.mark.slow
def test_a_shortened_run_decays_to_its_new_end_and_resumes_to_the_bit(tmp_path, monkeypatch, capfd):
    cache = tmp_path / "cache"
    monkeypatch.setattr(budget, "affordable_updates", lambda *_: 9)
    monkeypatch.setattr(budget, "SECONDS_OF_AN_ESTIMATE", 0.0)
    config = tiny_config(cache, budget_seconds=60.0)
    config = replace(config, optimizer=replace(config.optimizer, schedule="cosine"))
    assert train_in_budget(config, tmp_path / "whole")[:2] == (9, "finished")
    error = capfd.readouterr().err
    assert "update 2: 12 updates will take" in error and "the run now ends at update 9" in error
    records = metrics_of(tmp_path / "whole")
    rates = {each["step"]: each["train/learning_rate"] for each in records if "train/learning_rate" in each}
    assert rates[9] == pytest.approx(0.0, abs=1e-9) and rates[3] > rates[6] > 1e-3
    assert [each["step"] for each in records if "validation/bleu" in each] == [5, 9]
    # The checkpoint of update 2 is of the estimate alone.
    resumed = copy_until(2, tmp_path / "whole", tmp_path / "resumed")
    assert train_in_budget(config, resumed).step == 9
    assert metrics_of(resumed) == records
    # Without the budget the run has its full length again.
    unlimited = replace(config, training=replace(config.training, budget_seconds=0.0))
    assert train_in_budget(unlimited, resumed).step == 12


def watched(monkeypatch, cache, estimates, policy="shorten", rate=lambda step, length: 1.0, **counters):
    """The position, and the lines of the log, of a run of 500 updates after these estimates of its
    length or seconds."""
    lines = []
    monkeypatch.setattr(budget.LOGGER, "info", lambda text, *values: lines.append(text % values))
    watch, config = KeepToBudget(), tiny_config(cache, num_updates=500, budget_seconds=60.0, budget_policy=policy)
    position = Position(None, 0, Counters(num_updates=500, **counters), results=Results(metrics=object()))
    clock = SimpleNamespace(total=lambda _: 1.0, recent_update_seconds=lambda: 1.0)
    for number, length in enumerate(estimates, start=100):
        position.number = number
        monkeypatch.setattr(budget, "affordable_updates", lambda *_, length=length: length)
        goodput = SimpleNamespace(seconds=lambda length=length: {"step": 60.0 * length})
        run = SimpleNamespace(config=config, clock=clock, goodput=goodput, seconds_per_update=lambda _: 0.0)
        run.hyperparameters, run.update = (
            lambda length: length,
            SimpleNamespace(schedule=lambda n: partial(rate, length=n)),
        )
        watch(run, position)
    return position, lines


def test_only_the_first_estimate_and_large_changes_are_logged(monkeypatch, cache):
    position, lines = watched(monkeypatch, cache, [400, 390, 350, 330, 310, 300, 290, 280, 270])
    assert [line.rpartition("update ")[2] for line in lines] == ["400", "310"], (
        "the learning rate of noam does not decay"
    )
    assert position.num_updates == 270, "the others count too"
    _, lines = watched(monkeypatch, cache, [10.0, 10.5, 11.5, 12.5, 12.4], policy="stretch")
    assert [line.partition("take ")[2].partition(" ")[0] for line in lines] == ["10.0", "12.5"]


@pytest.mark.parametrize("policy", ["shorten", "stretch"])
def test_a_run_with_time_left_is_longer_than_planned_unless_its_rate_decays_already(monkeypatch, cache, policy):
    position, (line,) = watched(monkeypatch, cache, [700], policy)
    assert position.num_updates == 700 and position.has_new_length and "the run now ends at update 700" in line
    position, lines = watched(
        monkeypatch, cache, [700], policy, rate=lambda step, length: min(1.0, (length - step) / 450)
    )
    assert (position.num_updates, lines) == (500, [])


def test_a_run_that_has_hardly_time_left_ends_where_it_was_validated(monkeypatch, cache):
    position, lines = watched(monkeypatch, cache, [104], validated_at=100)
    assert (position.num_updates, position.ends) == (100, "finished") and "ends at update 100" in lines[0]
    for length, last in ((101, 50), (130, 100)):
        position, _ = watched(monkeypatch, cache, [length], validated_at=last)
        assert (position.num_updates, position.ends) == (length, ""), "the last is validated"
