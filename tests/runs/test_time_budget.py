"""The length of a run that has a budget of time."""

from dataclasses import replace

import pytest
from run_settings import tiny_config
from run_steps import copy_until, metrics_of, train

from transformer_jax.runs import record
from transformer_jax.runs.time_budget import affordable_updates


@pytest.mark.parametrize(
    ("spent", "seconds_per_update", "current", "length"),
    [
        (100, 1.0, 500, 500),  # 500 s, as planned
        (100, 1.02, 500, 500),  # misses the budget by less than the tolerance
        (100, 2.0, 500, 300),  # 400 s pay 200 more updates
        (100, 0.5, 300, 500),  # faster than it was: never longer than planned
        (600, 2.0, 500, 101),  # nothing is left: one more, which is validated
    ],
)
def test_a_run_ends_when_its_budget_does(spent, seconds_per_update, current, length):
    assert affordable_updates(100, spent, seconds_per_update, 500, current, 500) == length


def test_a_shortened_run_decays_to_its_new_end_and_resumes_to_the_bit(cache, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(record, "affordable_updates", lambda *_: 9)
    config = tiny_config(cache, budget_seconds=60.0)
    config = replace(config, optimizer=replace(config.optimizer, schedule="cosine"))
    assert train(config, tmp_path / "whole")[:2] == (9, "finished")
    assert "the run now ends at update 9" in capfd.readouterr().err
    records = metrics_of(tmp_path / "whole")
    rates = {each["step"]: each["train/learning_rate"] for each in records if "train/learning_rate" in each}
    assert rates[9] == pytest.approx(0.0, abs=1e-9) and rates[3] > rates[6] > 1e-3
    assert [each["step"] for each in records if "validation/bleu" in each] == [6, 9]
    resumed = copy_until(6, tmp_path / "whole", tmp_path / "resumed")
    assert train(config, resumed).step == 9
    assert metrics_of(resumed) == records


def test_a_run_shortened_within_its_warm_up_still_learns(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "affordable_updates", lambda *_: 5)
    config = tiny_config(cache, budget_seconds=60.0)
    config = replace(config, optimizer=replace(config.optimizer, schedule="cosine", warmup_updates=8))
    assert train(config, tmp_path).step == 5
    rates = [each["train/learning_rate"] for each in metrics_of(tmp_path) if "train/learning_rate" in each]
    assert all(0 < rate <= 1e-2 for rate in rates[:4]) and rates[4] == 0.0


def test_a_run_may_stretch(cache, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(record, "affordable_updates", lambda *_: 9)
    assert train(tiny_config(cache, budget_seconds=60.0, budget_policy="stretch", num_updates=10), tmp_path).step == 10
    assert "12 updates will take" not in capfd.readouterr().out
