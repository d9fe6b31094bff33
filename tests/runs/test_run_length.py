"""The length of a run that a hook shortened, and the time of its updates."""

import json
import shutil
from dataclasses import MISSING, fields, replace
from itertools import permutations
from types import SimpleNamespace

import pytest
from run_settings import tiny_config
from run_steps import train

from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runs.goodput import Clock
from transformer_jax.runs.run import Counters, Position, RunParts
from transformer_jax.training.schedules import make_schedule


def run_of(cache, **changes: object) -> RunParts:
    """A run with only what its length and its speed depend on."""
    config = tiny_config(cache, evaluate_every=6)
    config = replace(config, optimizer=replace(config.optimizer, schedule="cosine", warmup_updates=8))
    required = (each.name for each in fields(RunParts) if each.default is MISSING)
    goodput = SimpleNamespace(seconds=lambda: {"step": 30.0, "evaluation": 30.0})
    parts = dict.fromkeys(required) | {"config": config, "clock": Clock(), "goodput": goodput}
    return RunParts(**parts | changes)


def test_a_run_shortened_within_its_warm_up_still_learns(cache):
    run = run_of(cache)
    assert run.hyperparameters(12).warmup_updates == 8
    rate = make_schedule("cosine", run.hyperparameters(5), 16)
    rates = [float(rate(number)) for number in range(1, 6)]
    assert 0 < rates[3] < rates[2] < max(rates) <= 1e-2 and rates[4] == 0.0
    # A schedule without an end keeps its warm-up.
    endless = replace(run, config=replace(run.config, optimizer=replace(run.config.optimizer, schedule="noam")))
    assert endless.hyperparameters(5).warmup_updates == 8


@pytest.mark.parametrize(
    ("reasons", "ends"),
    [
        ([], ""),
        (["stopped"], "stopped"),
        (["patience", "stopped", "finished"], "finished"),
        (["finished", "interrupted", "stopped"], "interrupted"),
    ],
)
def test_of_several_reasons_to_end_one_counts_whatever_their_order(reasons, ends):
    for order in permutations(reasons):
        position = Position(None, 3, Counters(num_updates=12))
        for reason in order:
            position.stop(reason)
        assert position.ends == ends


@pytest.mark.slow
def test_a_run_whose_checkpoints_were_removed_has_its_whole_budget_and_no_scores_again(cache, tmp_path):
    run, config = RunDirectory(tmp_path), tiny_config(cache, num_updates=2)
    train(config, tmp_path)
    content = json.loads(run.goodput.read_text())
    run.goodput.write_text(json.dumps(content | {"seconds": content["seconds"] | {"step": 1e6}}))
    run.tracker_ids.write_text('{"wandb": "an id"}')
    evaluation = [tmp_path / f"evaluation-test-2-length_penalty=0.6.{suffix}" for suffix in ("json", "txt")]
    for file in (*evaluation, notes := tmp_path / "evaluation-notes.txt"):
        file.write_text("")
    train(config, tmp_path)
    assert json.loads(run.goodput.read_text())["seconds"]["step"] >= 1e6, "the run is the same"
    assert all(each.exists() for each in evaluation)
    shutil.rmtree(run.checkpoints)
    train(config, tmp_path)
    assert len(json.loads(run.run_record.read_text())) == 1, "its first start"
    assert not run.tracker_ids.exists(), "another run of W&B: it ignores steps that it has"
    assert notes.exists() and not any(each.exists() for each in evaluation), "compare reads these"
    assert json.loads(run.goodput.read_text())["seconds"]["step"] < 1e6


def test_a_validation_soon_after_a_restart_is_spread_over_its_interval(cache):
    run = run_of(cache, first_update=6)
    run.clock.seconds["evaluation"] = 12.0
    assert run.seconds_per_update(7) == pytest.approx(2.0)
    assert run.seconds_per_update(18) == pytest.approx(1.0)
    # Those before the restart count until there is another.
    assert run_of(cache, first_update=18).seconds_per_update(20) == pytest.approx(1.5)
