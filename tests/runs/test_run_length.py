"""The length of a run that a hook shortened, and the time of its updates."""

import json
import re
import shutil
from dataclasses import MISSING, fields, replace
from itertools import permutations
from types import SimpleNamespace

import pytest
from run_settings import tiny_config
from run_steps import train

from transformer_jax.commands.train import summary
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runs import hooks
from transformer_jax.runs.goodput import Clock
from transformer_jax.runs.initial_state import note_on_rate
from transformer_jax.runs.run import Counters, Outcome, Position, RunParts
from transformer_jax.training.schedules import make_schedule


def run_of(cache, **changes: object) -> RunParts:
    """A run with only what its length and its speed depend on."""
    config = tiny_config(cache, evaluate_every=6)
    config = replace(config, optimizer=replace(config.optimizer, schedule="cosine", warmup_updates=8))
    required = (field.name for field in fields(RunParts) if field.default is MISSING)
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
    seven, eighteen, twenty = (Position(None, number, Counters(num_updates=12)) for number in (7, 18, 20))
    assert run.seconds_per_update(seven) == pytest.approx(2.0)
    assert run.seconds_per_update(eighteen) == pytest.approx(1.0)
    # Those before the restart count until there is another.
    assert run_of(cache, first_update=18).seconds_per_update(twenty) == pytest.approx(1.5)


def validated(cache, lengths: dict[int, int], num_updates: int = 600, **training: object) -> list[int]:
    """The updates that are validated by a run whose length becomes ``lengths[number]`` after update
    ``number``."""
    run = run_of(cache, config=tiny_config(cache, num_updates=num_updates, **training))
    position, found = Position(None, 0, Counters(num_updates=num_updates)), []
    for number in range(1, num_updates + 1):
        position.number = number
        if hooks.is_validation_due(run, position, number):
            position.counters.validated_at = number
            found.append(number)
            assert hooks.is_save_due(run, position, number), "after the validation too"
        position.counters.num_updates = lengths.get(number, position.num_updates)
        if number >= position.num_updates:
            return found
    return found


def test_validations_are_planned_again_with_the_length(cache):
    assert validated(cache, {}, evaluate_every=250) == [250, 500, 600]
    assert validated(cache, {60: 280}, evaluate_every=301) == [140, 280], "not only once at the end"
    assert validated(cache, {60: 301}, evaluate_every=300) == [151, 301], "not twice one update apart"
    assert validated(cache, {60: 450}, evaluate_every=50, budget_seconds=60.0) == [*range(50, 451, 50)], "as stated"
    # The tool that plans for a budget estimates the end again and again.
    found = validated(cache, {60: 280, 150: 320, 200: 290}, evaluate_every=301, budget_seconds=60.0)
    assert found == [140, 290]
    assert validated(cache, {}, num_updates=602, evaluate_every=300, budget_seconds=60.0) == [300, 602]
    assert validated(cache, {}, evaluate_every=0) == []


def test_a_jump_of_the_learning_rate_of_a_resumed_run_is_told(cache):
    config = run_of(cache).config
    config = replace(config, training=replace(config.training, num_updates=100))
    update = SimpleNamespace(schedule=lambda hyperparameters: make_schedule("cosine", hyperparameters, 16))
    (note,) = note_on_rate(update, config, 40, 40, 100)
    assert re.fullmatch(
        r"the learning rate, 0 at update 40, continues at 0\.0\d+: the run had 40 updates and now has 100", note
    )
    assert not note_on_rate(update, config, 40, 98, 100), "a small change"
    assert not note_on_rate(update, config, 100, 100, 100) and not note_on_rate(update, config, 40, 0, 100)


@pytest.mark.parametrize(
    ("seconds", "here", "said"),
    [
        (72.0, 75.0, "BLEU 21.27 (96 of 1,014 sentences, greedy), 1.2 minutes;"),
        (252.0, 72.0, "4.2 minutes, 1.2 of them"),
    ],
)
def test_the_time_of_a_run_is_of_all_its_starts(cache, tmp_path, seconds, here, said):
    outcome = Outcome(
        12, "finished", 21.27, "", "validation/bleu", basis="96 of 1,014 sentences, greedy", seconds=seconds
    )
    assert said in summary(outcome, RunDirectory(tmp_path), tiny_config(cache), here)
    stopped = summary(outcome._replace(reason="interrupted"), RunDirectory(tmp_path), tiny_config(cache), here)
    assert f"after {said.rpartition('), ')[2].removesuffix(';')}" in stopped
