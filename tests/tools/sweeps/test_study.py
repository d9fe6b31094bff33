"""What a study promises its workers, without runs."""

import json
import threading
import time
from dataclasses import replace

import pytest
from optuna.trial import TrialState
from tools.sweeps.studies import GRID, SEARCH

from transformer_jax.config import ConfigError
from transformer_jax.tools.sweeps.compiled_first import CompiledFirst
from transformer_jax.tools.sweeps.definition import Sweep
from transformer_jax.tools.sweeps.heartbeat import heartbeat
from transformer_jax.tools.sweeps.ranges import LogUniform, Uniform
from transformer_jax.tools.sweeps.storage import open_storage
from transformer_jax.tools.sweeps.study import SharedStudy, best_of, number_of


def test_all_trials_are_planned_once_whoever_joins(storage):
    first, second = SharedStudy(GRID, storage, "s"), SharedStudy(GRID, storage, "s")
    claimed = [study.claim() for study in (first, second, first, second, first)]
    assert claimed[-1] is None
    assert [trial.number for trial in claimed[:-1]] == [0, 1, 2, 3]
    points = [first.point(trial) for trial in claimed[:-1]]
    assert points == [{"row": row, "seed": seed} for row in "ab" for seed in (3, 4)]


def test_of_many_threads_one_claims_a_trial(storage):
    study = SharedStudy(SEARCH, storage, "s")
    claimed = []
    threads = [threading.Thread(target=lambda: claimed.append(study.claim())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(trial.number for trial in claimed if trial) == [0, 1, 2, 3, 4]


@pytest.fixture
def later(monkeypatch):
    """Makes it so many seconds later than it is."""
    real = time.monotonic
    return lambda seconds: monkeypatch.setattr(time, "monotonic", lambda: real() + seconds)


def silent_for_a_grace(studies, later, seconds):
    """Lets workers look at the study, and look again after so many seconds in which nothing happened."""
    for study in studies:
        assert study.enqueue_stale_again() == []
    later(seconds)


def test_a_silent_worker_loses_its_trial_to_one_other(storage, later):
    study, other = (SharedStudy(SEARCH, storage, "s", grace_seconds=100.0) for _ in range(2))
    lost = study.claim()
    point = study.point(lost)
    silent_for_a_grace([study, other], later, 101)
    assert other.enqueue_stale_again() == [0]
    assert study.enqueue_stale_again() == []
    others = [study.claim() for _ in range(5)]
    assert number_of(others[0]) == 0, "it comes before those that were never begun"
    assert study.point(others[0]) == point
    study.finish(lost, TrialState.COMPLETE, 1.0)
    study.finish(others[0], TrialState.COMPLETE, 2.0)
    assert study.trials()[0].value == 2.0
    assert len(study.trials()) == 5


def test_a_worker_that_says_it_lives_keeps_its_trial(storage, later):
    study = SharedStudy(SEARCH, storage, "s", grace_seconds=3.0)
    trial = study.claim()
    with heartbeat(trial, 3.0) as lost:
        first = study.study.trials[0].user_attrs["alive"]
        assert study.enqueue_stale_again() == []
        deadline = time.monotonic() + 60
        while study.study.trials[0].user_attrs["alive"] == first and time.monotonic() < deadline:
            time.sleep(0.1)
        later(100)
        assert study.enqueue_stale_again() == []
    assert not lost.is_set()
    later(200)
    assert study.enqueue_stale_again() == [0]


def test_a_trial_is_offered_once_though_two_take_it_over_at_the_same_time(storage, later, monkeypatch):
    first, second = (SharedStudy(SEARCH, storage, "s", grace_seconds=100.0) for _ in range(2))
    offer = first._enqueue_again
    first.claim()
    silent_for_a_grace([first, second], later, 101)
    # Between the two steps of the first, the second looks too.
    monkeypatch.setattr(first, "_enqueue_again", lambda trial: (second.enqueue_stale_again(), offer(trial)))
    assert first.enqueue_stale_again() == [0]
    assert len(first.study.trials) == 6
    # And whoever dies between them leaves it to others, later.
    monkeypatch.setattr(first, "_enqueue_again", lambda trial: None)
    first.claim()
    silent_for_a_grace([first, second], later, 303)
    assert first.enqueue_stale_again() == [0]
    silent_for_a_grace([second], later, 505)
    assert second.enqueue_stale_again() == [0]


def test_a_trial_that_ended_is_not_begun_again_though_it_was_offered_twice(storage):
    study = SharedStudy(GRID, storage, "s")
    trial = study.claim()
    study._enqueue_again(study.study.trials[0])
    study.point(trial)
    study.finish(trial, TrialState.COMPLETE, 1.0, step=1)
    assert [number_of(study.claim()) for _ in range(3)] == [1, 2, 3]
    assert study.claim() is None


def test_a_sweep_may_grow(storage):
    first = SharedStudy(replace(GRID, rows={"a": {}}, seeds=(3,)), storage, "s")
    trial = first.claim()
    points = [first.point(trial)]
    first.finish(trial, TrialState.COMPLETE, 1.0, step=1)
    study = SharedStudy(GRID, storage, "s")
    points += [study.point(study.claim()) for _ in range(3)]
    assert points[0] == {"row": "a", "seed": 3}
    assert sorted((point["row"], point["seed"]) for point in points) == [("a", 3), ("a", 4), ("b", 3), ("b", 4)]
    SharedStudy(SEARCH, storage, "t")
    assert len(SharedStudy(replace(SEARCH, trials=7), storage, "t").trials()) == 7
    assert len(SharedStudy(SEARCH, storage, "t").trials()) == 7


@pytest.mark.parametrize("sampler", ["tpe", "cma-es"])
def test_a_sampler_learns_from_the_trials_before(storage, sampler):
    """After its first random trials it chooses all settings together, with what the others found."""
    space = {"optimizer.learning_rate": LogUniform(1e-4, 1e-2), "model.dropout": Uniform(0.0, 0.5)}
    sweep = Sweep(config="configs/quickstart.py", space=space, sampler=sampler, trials=14, metric="validation/loss")
    study = SharedStudy(sweep, storage, "s")
    for _ in range(13):
        trial = study.claim()
        point = study.point(trial)
        study.finish(trial, TrialState.COMPLETE, float(point["model.dropout"]), step=1)
    trial = study.claim()
    if sampler == "tpe":
        # TPE's first ten are random, and it chooses each setting by itself; what it has seen are these.
        seen = study.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        assert (
            len(seen)
            == len(study.study._get_trials(deepcopy=False, states=(TrialState.COMPLETE,), use_cache=True))
            == 13
        )
    else:
        assert set(trial.relative_params) == set(space)


def test_another_sweep_under_the_name_is_refused(storage):
    SharedStudy(GRID, storage, "s")
    other = Sweep(config="configs/quickstart.py", rows={"a": {}, "b": {"model.d_ff": 32}}, seeds=(3, 4))
    with pytest.raises(ConfigError, match=r"begun with other rows, b: .*64.*now it is .*32.*another --workdir"):
        SharedStudy(other, storage, "s")


def test_a_study_of_another_version_goes_on(storage):
    """It lacks new settings, and has other defaults of some that alter no result."""
    study = SharedStudy(GRID, storage, "s").study
    before = json.loads(study.user_attrs["definition"])
    del before["settings"]["mesh.context"]
    before["settings"]["decoding.batch_tokens"] = 4096
    study.set_user_attr("definition", json.dumps(before))
    SharedStudy(GRID, storage, "s")
    before["settings"]["model.d_model"] = 7
    study.set_user_attr("definition", json.dumps(before))
    with pytest.raises(ConfigError, match="begun with other settings, model.d_model: 7, and now"):
        SharedStudy(GRID, storage, "s")


def test_workers_share_the_trials_so_that_each_compiles_little(storage):
    """Trials of one row differ in the seed alone, given data that do not."""
    sweep = Sweep(config="configs/quickstart.py", overrides={"data.seed": 0}, rows=GRID.rows, seeds=(3, 4))
    study = SharedStudy(sweep, storage, "s")
    order, preferences = [], [CompiledFirst(study) for _ in range(2)]
    for worker in (0, 1, 1, 0):
        trial = study.claim(preferences[worker].ranks())
        preferences[worker].note(sweep.settings(study.point(trial)))
        order.append(trial.number)
    assert order == [0, 2, 3, 1]


def test_the_best_is_the_earliest_of_the_best():
    assert best_of({100: 3.0, 200: 5.0, 300: 5.0}, "maximize") == (200, 5.0)
    assert best_of({100: 3.0, 200: 2.0, 300: 2.0}, "minimize") == (200, 2.0)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "postgresql+psycopg://me:secret@127.0.0.1:1/x",
            r"--storage: postgresql\+psycopg://me:\*\*\*@127.0.0.1:1/x cannot be",
        ),
        ("nonsense://x", "--storage: nonsense://x cannot be opened"),
        ("sqlite:///study.db", "two workers of an SQLite study can claim one trial"),
        ("/proc/study.journal", "--storage: /proc/study.journal: "),
    ],
)
def test_a_storage_out_of_reach_is_a_message(url, message):
    with pytest.raises(ConfigError, match=message) as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)
