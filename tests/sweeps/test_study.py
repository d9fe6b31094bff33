"""What a study promises its workers, without trainings."""

import csv
import threading
import time
from dataclasses import replace

import pytest
from optuna.trial import TrialState

from transformer_jax.config import ConfigError
from transformer_jax.loop import Outcome
from transformer_jax.sweeps.compiled_first import CompiledFirst
from transformer_jax.sweeps.definition import Sweep
from transformer_jax.sweeps.leaderboard import seed_table, trial_table, write_leaderboard
from transformer_jax.sweeps.liveness import alive
from transformer_jax.sweeps.overview import rows
from transformer_jax.sweeps.ranges import Choice, Integers, LogUniform, Uniform
from transformer_jax.sweeps.storage import open_storage
from transformer_jax.sweeps.study import SharedStudy, best_of, number_of
from transformer_jax.sweeps.worker import Worker

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
    real = time.monotonic
    return lambda seconds: monkeypatch.setattr(time, "monotonic", lambda: real() + seconds)


def silent_for_a_grace(studies, later, seconds):
    """Lets workers look at the study, and look again after so many seconds in which nothing happened."""
    for study in studies:
        assert study.take_over_orphans() == []
    later(seconds)


def test_a_silent_worker_loses_its_trial_to_one_other(storage, later):
    study, other = (SharedStudy(SEARCH, storage, "s", grace_seconds=100.0) for _ in range(2))
    lost = study.claim()
    point = study.point(lost)
    silent_for_a_grace([study, other], later, 101)
    assert other.take_over_orphans() == [0]
    assert study.take_over_orphans() == []
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
    with alive(trial, 3.0) as lost:
        first = study.study.trials[0].user_attrs["alive"]
        assert study.take_over_orphans() == []
        deadline = time.monotonic() + 60
        while study.study.trials[0].user_attrs["alive"] == first and time.monotonic() < deadline:
            time.sleep(0.1)
        later(100)
        assert study.take_over_orphans() == []
    assert not lost.is_set()
    later(200)
    assert study.take_over_orphans() == [0]


def test_a_trial_is_offered_once_though_two_take_it_over_at_the_same_time(storage, later, monkeypatch):
    first, second = (SharedStudy(SEARCH, storage, "s", grace_seconds=100.0) for _ in range(2))
    offer = first._offer_again
    first.claim()
    silent_for_a_grace([first, second], later, 101)
    # Between the two steps of the first, the second looks too.
    monkeypatch.setattr(first, "_offer_again", lambda trial: (second.take_over_orphans(), offer(trial)))
    assert first.take_over_orphans() == [0]
    assert len(first.study.trials) == 6
    # And whoever dies between them leaves it to others, later.
    monkeypatch.setattr(first, "_offer_again", lambda trial: None)
    first.claim()
    silent_for_a_grace([first, second], later, 303)
    assert first.take_over_orphans() == [0]
    silent_for_a_grace([second], later, 505)
    assert second.take_over_orphans() == [0]


def test_a_trial_that_ended_is_not_begun_again_though_it_was_offered_twice(storage):
    study = SharedStudy(GRID, storage, "s")
    trial = study.claim()
    study._offer_again(study.study.trials[0])
    study.point(trial)
    study.finish(trial, TrialState.COMPLETE, 1.0, step=1)
    assert [number_of(study.claim()) for _ in range(3)] == [1, 2, 3]
    assert study.claim() is None


def test_a_sweep_may_grow(storage):
    SharedStudy(replace(GRID, rows={"a": {}}, seeds=(3,)), storage, "s")
    study = SharedStudy(GRID, storage, "s")
    points = [study.point(study.claim()) for _ in range(4)]
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
    Worker(study, tmp_path, pretend).work()
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


def test_trials_that_diverge_end_no_worker(storage, tmp_path):
    class TrainingDiverged(RuntimeError):
        pass

    def diverge(config, folder, judge):
        raise TrainingDiverged("update 3: loss nan\nand more lines")

    study = SharedStudy(GRID, storage, "s")
    Worker(study, tmp_path, diverge).work()
    assert [row.error for row in rows(study)] == ["TrainingDiverged: update 3: loss nan"] * 4


def test_a_storage_that_does_not_answer_is_waited_for(storage, tmp_path, monkeypatch):
    study = SharedStudy(GRID, storage, "s", grace_seconds=0.06)
    broken = iter([True, False] * 50)

    def sometimes(call):
        def flaky(*arguments, **options):
            if next(broken, False):
                raise OSError("server closed the connection")
            return call(*arguments, **options)

        return flaky

    def pretend(config, folder, judge):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").write_text('{"step": 5, "validation/bleu": 7.5}\n')
        judge(5, {"validation/bleu": 7.5})
        return Outcome(5, "finished", 7.5, "")

    for name in ("claim", "finish", "take_over_orphans"):
        monkeypatch.setattr(study, name, sometimes(getattr(study, name)))
    Worker(study, tmp_path, pretend).work()
    assert [row.state for row in rows(study)] == ["complete"] * 4


def test_who_is_asked_to_stop_in_the_last_validation_stops_after_it(storage, tmp_path):
    def pretend(config, folder, judge):
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text('{"step": 5, "validation/bleu": 7.5}\n')
        return Outcome(5, "finished", 7.5, "", is_asked_to_stop=True)

    study = SharedStudy(GRID, storage, "s")
    with pytest.raises(KeyboardInterrupt):
        Worker(study, tmp_path, pretend).work()
    assert [row.state for row in rows(study)] == ["complete", "waiting", "waiting", "waiting"]


def test_trial_after_trial_that_fails_ends_the_worker(storage, tmp_path):
    study = SharedStudy(GRID, storage, "s")
    with pytest.raises(ConfigError, match="3 trials in a row failed, the last with: ZeroDivisionError"):
        Worker(study, tmp_path, lambda config, folder, judge: 1 / 0).work()


def test_what_is_stopped_is_offered_anew_and_a_poor_trial_is_pruned(storage, tmp_path):
    study = SharedStudy(SEARCH, storage, "s")
    losses = iter([1.0, 1.1, 1.2, 1.3, 9.0])

    def pretend(config, folder, judge):
        folder.mkdir(parents=True, exist_ok=True)
        loss = next(losses)
        (folder / "metrics.jsonl").write_text(f'{{"step": 400, "validation/loss": {loss}}}\n')
        return Outcome(400, "judged" if judge(400, {"validation/loss": loss}) else "finished", None, "")

    with pytest.raises(KeyboardInterrupt):
        Worker(study, tmp_path, lambda config, folder, judge: Outcome(3, "interrupted", None, "")).work()
    assert [trial.state for trial in study.trials()] == [TrialState.WAITING] * 5
    Worker(study, tmp_path, pretend).work()
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
