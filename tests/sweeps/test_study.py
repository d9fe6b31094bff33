"""What a study promises its workers, without trainings."""

import csv
import threading
import time

import pytest
from optuna.trial import TrialState

from transformer_jax.config import ConfigError
from transformer_jax.loop import Outcome
from transformer_jax.sweeps.compiled_first import CompiledFirst
from transformer_jax.sweeps.definition import Sweep
from transformer_jax.sweeps.leaderboard import seed_table, trial_table, write_leaderboard
from transformer_jax.sweeps.overview import rows
from transformer_jax.sweeps.ranges import Choice, Integers, LogUniform
from transformer_jax.sweeps.storage import open_storage
from transformer_jax.sweeps.study import SharedStudy, best_of, number_of
from transformer_jax.sweeps.worker import work

GRID = Sweep(config="configs/quickstart.py", rows={"a": {}, "b": {"model.d_ff": 64}}, seeds=(3, 4))
SEARCH = Sweep(
    config="configs/quickstart.py",
    space={
        "optimizer.learning_rate": LogUniform(1e-4, 1e-2),
        "model.num_encoder_layers": Integers(1, 3),
        "model.dropout": Choice(0.0, 0.1),
    },
    sampler="tpe",
    pruner="median",
    trials=5,
    metric="validation/loss",
)


@pytest.fixture
def storage(tmp_path):
    return open_storage(str(tmp_path / "study.journal"))


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
    real = time.time
    return lambda seconds: monkeypatch.setattr(time, "time", lambda: real() + seconds)


def test_a_silent_worker_loses_its_trial_to_one_other(storage, later):
    study = SharedStudy(SEARCH, storage, "s", grace_seconds=100.0)
    lost = study.claim()
    point = study.point(lost)
    lost.report(3.5, 10)
    assert study.take_over_orphans() == []
    later(101)
    assert SharedStudy(SEARCH, storage, "s", grace_seconds=100.0).take_over_orphans() == [0]
    assert study.take_over_orphans() == []
    others = [study.claim() for _ in range(5)]
    again = next(trial for trial in others if number_of(trial) == 0)
    assert study.point(again) == point
    assert study.study.trials[again.number].intermediate_values == {10: 3.5}
    study.finish(lost, TrialState.COMPLETE, 1.0)
    study.finish(again, TrialState.COMPLETE, 2.0)
    assert study.trials()[0].value == 2.0
    assert len(study.trials()) == 5


def test_a_trial_is_offered_once_though_two_take_it_over_at_the_same_time(storage, later, monkeypatch):
    first, second = (SharedStudy(SEARCH, storage, "s", grace_seconds=100.0) for _ in range(2))
    offer = first._offer_again
    fall_silent(first.claim())
    # Between the two steps of the first, the second looks too.
    monkeypatch.setattr(first, "_offer_again", lambda trial: (second.take_over_orphans(), offer(trial)))
    assert first.take_over_orphans() == [0]
    assert len(first.study.trials) == 6
    # And whoever dies between them leaves it to others, later.
    monkeypatch.setattr(first, "_offer_again", lambda trial: None)
    fall_silent(first.claim())
    assert first.take_over_orphans() == [0], "it comes before those that were never begun"
    assert second.take_over_orphans() == []
    later(101)
    assert second.take_over_orphans() == [0]


def fall_silent(trial):
    trial.set_user_attr("alive", time.time() - 1000)


def test_a_worker_that_says_it_lives_keeps_its_trial(storage, later):
    study = SharedStudy(SEARCH, storage, "s", grace_seconds=6.0)
    trial = study.claim()
    with study.alive(trial) as lost:
        first = trial.user_attrs["alive"]
        deadline = time.monotonic() + 60
        while study.study.trials[0].user_attrs["alive"] == first and time.monotonic() < deadline:
            time.sleep(0.1)
        later(study.study.trials[0].user_attrs["alive"] - time.time() + 5)
        assert study.take_over_orphans() == []
    assert not lost.is_set()
    later(60)
    assert study.take_over_orphans() == [0]


def test_another_sweep_under_the_name_is_refused(storage):
    SharedStudy(GRID, storage, "s")
    other = Sweep(config="configs/quickstart.py", rows={"a": {}, "b": {"model.d_ff": 32}}, seeds=(3, 4))
    with pytest.raises(ConfigError, match=r"begun with rows .*64.*now it is .*32.*another --workdir"):
        SharedStudy(other, storage, "s")


def test_work_trains_all_and_says_what_failed(storage, tmp_path):
    def pretend(config, folder, judge):
        if config.seed == 4 and config.model.d_ff == 64:
            raise RuntimeError("memory | ran out")
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(
            '{"step": 5, "validation/bleu": 7.5, "validation/chrf": 1}\n{"step": 9, "validation/bleu": 7.0}\n{"st'
        )
        judge(5, {"validation/bleu": 7.5})
        return Outcome(9, "finished", 7.5, "")

    study = SharedStudy(GRID, storage, "s")
    work(study, tmp_path, pretend)
    found = rows(study)
    assert [(row.state, row.value, row.step) for row in found] == [("complete", 7.5, 5)] * 3 + [("failed", None, None)]
    table = trial_table(GRID, found)
    assert table.headings == ("trial", "state", "row", "seed", "validation/bleu", "update", "minutes", "why it failed")
    assert table.rows[3][-1] == "RuntimeError: memory | ran out"
    assert seed_table(GRID, found).rows == (("a", "7.5", "7.5", "7.5", "2"), ("b", "7.5", "7.5", "7.5", "1"))
    write_leaderboard(GRID, found, [], tmp_path)
    lines = list(csv.DictReader((tmp_path / "leaderboard.csv").read_text().splitlines()))
    assert [(line["trial"], line["validation/chrf"]) for line in lines] == [
        ("0", "1"),
        ("1", "1"),
        ("2", "1"),
        ("3", ""),
    ]
    assert "memory \\| ran out" in (tmp_path / "leaderboard.md").read_text()
    study.retry_failed()
    assert number_of(study.claim()) == 3


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


def test_trial_after_trial_that_fails_ends_the_worker(storage, tmp_path):
    study = SharedStudy(GRID, storage, "s")
    with pytest.raises(ConfigError, match="3 trials in a row failed, the last with: ZeroDivisionError"):
        work(study, tmp_path, lambda config, folder, judge: 1 / 0)


def test_what_is_stopped_is_offered_anew_and_a_poor_trial_is_pruned(storage, tmp_path):
    study = SharedStudy(SEARCH, storage, "s")
    losses = iter([1.0, 1.1, 1.2, 1.3, 9.0])

    def pretend(config, folder, judge):
        folder.mkdir(parents=True, exist_ok=True)
        loss = next(losses)
        (folder / "metrics.jsonl").write_text(f'{{"step": 400, "validation/loss": {loss}}}\n')
        return Outcome(400, "judged" if judge(400, {"validation/loss": loss}) else "finished", None, "")

    with pytest.raises(KeyboardInterrupt):
        work(study, tmp_path, lambda config, folder, judge: Outcome(3, "interrupted", None, ""))
    assert [trial.state for trial in study.trials()] == [TrialState.WAITING] * 5
    work(study, tmp_path, pretend)
    assert [row.state for row in rows(study)] == ["complete"] * 4 + ["pruned"]


def test_the_best_is_the_earliest_of_the_best():
    assert best_of({100: 3.0, 200: 5.0, 300: 5.0}, "maximize") == (200, 5.0)
    assert best_of({100: 3.0, 200: 2.0, 300: 2.0}, "minimize") == (200, 2.0)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "postgresql+psycopg://me:secret@127.0.0.1:1/x",
            r"--storage: postgresql\+psycopg://me@127.0.0.1:1/x cannot be",
        ),
        ("nonsense://x", "--storage: nonsense://x cannot be opened"),
        ("sqlite:///study.db", "SQLite cannot keep workers apart"),
        ("/proc/study.journal", "--storage: /proc/study.journal: "),
    ],
)
def test_a_storage_out_of_reach_is_a_message(url, message):
    with pytest.raises(ConfigError, match=message) as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)
