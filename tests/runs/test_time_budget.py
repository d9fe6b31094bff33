"""The length of a run that has a budget of time."""

import json
import shutil
from dataclasses import MISSING, fields, replace
from types import SimpleNamespace

import pytest
from run_settings import tiny_config
from run_steps import copy_until, metrics_of, train

from transformer_jax.runs import hooks
from transformer_jax.runs import run as runs
from transformer_jax.runs.goodput import Clock
from transformer_jax.runs.hooks import affordable_updates
from transformer_jax.runs.run import Counters, TrainingRun
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.training.schedules import make_schedule


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


@pytest.mark.slow
def test_a_shortened_run_decays_to_its_new_end_and_resumes_to_the_bit(cache, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(hooks, "affordable_updates", lambda *_: 9)
    monkeypatch.setattr(runs, "SECONDS_OF_AN_ESTIMATE", 0.0)
    config = tiny_config(cache, budget_seconds=60.0)
    config = replace(config, optimizer=replace(config.optimizer, schedule="cosine"))
    assert train(config, tmp_path / "whole")[:2] == (9, "finished")
    error = capfd.readouterr().err
    assert "update 2: 12 updates will take" in error and "the run now ends at update 9" in error
    records = metrics_of(tmp_path / "whole")
    rates = {each["step"]: each["train/learning_rate"] for each in records if "train/learning_rate" in each}
    assert rates[9] == pytest.approx(0.0, abs=1e-9) and rates[3] > rates[6] > 1e-3
    assert [each["step"] for each in records if "validation/bleu" in each] == [6, 9]
    # The checkpoint of update 2 is of the estimate alone.
    resumed = copy_until(2, tmp_path / "whole", tmp_path / "resumed")
    assert train(config, resumed).step == 9
    assert metrics_of(resumed) == records
    # Without the budget the run has its full length again.
    assert train(replace(config, training=replace(config.training, budget_seconds=0.0)), resumed).step == 12


def run_of(cache, number: int = 3, num_updates: int = 0, **training: object) -> TrainingRun:
    """A run after ``number`` updates, with only what its length depends on."""
    config = tiny_config(cache, budget_seconds=60.0, **training)
    config = replace(config, optimizer=replace(config.optimizer, schedule="cosine", warmup_updates=8))
    required = (each.name for each in fields(TrainingRun) if each.default is each.default_factory is MISSING)
    parts = dict.fromkeys(required) | {"config": config, "clock": Clock()}
    parts["goodput"] = SimpleNamespace(seconds=lambda: {"step": 30.0, "evaluation": 0.0})
    return TrainingRun(**parts, counters=Counters(num_updates=num_updates), number=number)


def test_a_run_shortened_within_its_warm_up_still_learns(cache):
    assert run_of(cache).hyperparameters.warmup_updates == 8
    rate = make_schedule("cosine", run_of(cache, num_updates=5).hyperparameters, 16)
    rates = [float(rate(number)) for number in range(1, 6)]
    assert 0 < rates[3] < rates[2] < max(rates) <= 1e-2 and rates[4] == 0.0
    # A schedule without an end keeps its warm-up.
    run = run_of(cache, num_updates=5)
    run.config = replace(run.config, optimizer=replace(run.config.optimizer, schedule="noam"))
    assert run.hyperparameters.warmup_updates == 8


@pytest.mark.slow
def test_a_run_whose_checkpoints_were_removed_has_its_whole_budget_and_no_scores_again(cache, tmp_path):
    run, config = RunDirectory(tmp_path), tiny_config(cache, num_updates=2)
    train(config, tmp_path)
    content = json.loads(run.goodput.read_text())
    run.goodput.write_text(json.dumps(content | {"seconds": content["seconds"] | {"step": 1e6}}))
    scores = run.watched("validation") / "metrics.jsonl"
    scores.parent.mkdir()
    scores.write_text('{"step": 2, "validation/bleu": 1.0}\n')
    run.tracker_ids.write_text('{"wandb": "an id"}')
    evaluation = [tmp_path / f"evaluation-test-2-length_penalty=0.6.{suffix}" for suffix in ("json", "txt")]
    for file in (*evaluation, notes := tmp_path / "evaluation-notes.txt"):
        file.write_text("")
    train(config, tmp_path)
    assert scores.exists() and json.loads(run.goodput.read_text())["seconds"]["step"] >= 1e6, "the run is the same"
    assert all(each.exists() for each in evaluation)
    shutil.rmtree(run.checkpoints)
    train(config, tmp_path)
    assert len(json.loads(run.run_record.read_text())) == 1, "its first start"
    assert not run.tracker_ids.exists(), "another run of W&B: it ignores steps that it has"
    assert notes.exists() and not any(each.exists() for each in evaluation), "compare reads these"
    assert not scores.exists() and json.loads(run.goodput.read_text())["seconds"]["step"] < 1e6


def test_a_validation_soon_after_a_restart_is_spread_over_its_interval(cache):
    run = run_of(cache, number=7, evaluate_every=6)
    run.first_update = 6
    run.clock.seconds["evaluation"] = 12.0
    assert run.seconds_per_update == pytest.approx(2.0)
    run.number = 18
    assert run.seconds_per_update == pytest.approx(1.0)
    # Those before the restart count until there is another.
    run.number, run.first_update, run.clock.seconds["evaluation"] = 20, 18, 0.0
    run.goodput.seconds = lambda: {"evaluation": 30.0}
    assert run.seconds_per_update == pytest.approx(1.5)
