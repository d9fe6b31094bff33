"""Studies and their workers, with pretended trainings: every trial is trained once, whatever
happens to a worker."""

import csv
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from optuna.trial import TrialState
from sqlalchemy import text
from tools.study.pretended_training import GRID, ONE, SEARCH, PretendedTraining

from transformer_jax.checkpoints.save_failure import SaveFailed
from transformer_jax.config import ConfigError, DataError, to_json
from transformer_jax.run_directory.layout import write_json
from transformer_jax.runs.run import Outcome, TrainingDiverged
from transformer_jax.tools.study import worker
from transformer_jax.tools.study.optuna_study import open_study, retry, retry_failed, trial_rows, trials_of
from transformer_jax.tools.study.runs_table import heat_map, trial_table, write_leaderboard
from transformer_jax.tools.study.sweeps import STORAGE_VARIABLE, Choice, LogUniform, Sweep, TrialRow, Uniform
from transformer_jax.tools.study.worker import work


@pytest.fixture
def join(tmp_path):
    """``join(sweep)`` opens the study as one more worker would, with connections of its own."""
    return lambda sweep: open_study(sweep, tmp_path, "study", 60.0)


@pytest.fixture
def training(monkeypatch):
    pretended = PretendedTraining()
    monkeypatch.setattr(worker, "train_run", pretended)
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.05)
    return pretended


def raises(error):
    """A step before a training that fails."""

    def fail(config):
        raise error

    return fail


def states(study, sweep) -> list[str]:
    return [row.state for row in trial_rows(study, sweep)]


def test_a_grid_of_two_settings_is_a_map_of_means_over_seeds(tmp_path):
    space = {"model.dropout": Choice(0.0, 0.1), "model.d_ff": Choice(32, 64, 128)}
    sweep = Sweep(config="configs/quickstart.py", seeds=(3, 4), space=space)
    trials = [
        TrialRow(0, "complete", point["model.d_ff"] + point["seed"], 1, point, 1.0, "", "", {})
        for point in sweep.points()
        if point["model.d_ff"] < 128 or point["model.dropout"]
    ]
    panel = heat_map(["model.dropout", "model.d_ff"], trials, sweep.measured)
    assert (panel.rows, panel.columns) == (["0.0", "0.1"], ["32", "64", "128"])
    np.testing.assert_array_equal(panel.values, [[35.5, 67.5, np.nan], [35.5, 67.5, 131.5]])
    _, written = write_leaderboard(sweep, trials, tmp_path)
    assert tmp_path / "settings.png" in written


def test_a_grid_is_trained_and_failed_trials_are_tried_again(join, training, tmp_path):
    study = join(GRID)

    def fail_last(config):
        if config.seed == 4 and config.model.d_ff == 64:
            raise RuntimeError("memory | ran out")

    training.before = fail_last
    work(study, GRID, tmp_path, 60.0)
    rows = trial_rows(study, GRID)
    assert [(row.state, row.value, row.step) for row in rows] == [("complete", 7.4, 100)] * 3 + [("failed", None, None)]
    assert [row.point for row in rows] == [{"row": row, "seed": seed} for row in "ab" for seed in (3, 4)]
    assert trial_table(GRID, rows).lines[4][-1] == "RuntimeError: memory | ran out"
    rows[0] = rows[0]._replace(state="pruned", value=9.0)
    (_, over_seeds), _ = write_leaderboard(GRID, rows, tmp_path)
    assert over_seeds.blocks[0].lines[1:] == [["a", "7.40", "1 of 2"], ["b", "7.40", "1 of 2"]], "complete trials only"
    lines = list(csv.DictReader((tmp_path / "leaderboard.csv").read_text().splitlines()))
    assert [(line["trial"], line["validation/chrf"]) for line in lines] == [*((n, "1.0") for n in "012"), ("3", "")]
    assert "memory \\| ran out" in (tmp_path / "leaderboard.md").read_text()

    training.before = lambda config: None
    retry_failed(study, GRID)
    work(study, GRID, tmp_path, 60.0)
    assert states(study, GRID) == ["complete"] * 4
    assert training.folders == ["0000", "0001", "0002", "0003", "0003"]


def test_the_run_of_another_sweep_is_not_taken_for_a_trial(join, training, tmp_path):
    folder = tmp_path / "trials" / "0000"
    (folder / "checkpoints" / "3" / "rest").mkdir(parents=True)
    write_json(folder / "config.json", to_json(ONE.settings({"row": "a", "seed": 5})))
    work(study := join(ONE), ONE, tmp_path, 60.0)
    (row,) = trial_rows(study, ONE)
    assert row.state == "failed" and "holds a run with other settings" in row.error and not training.folders


def test_workers_at_the_same_time_train_each_point_once(join, training, tmp_path):
    sweep = replace(GRID, seeds=(1, 2))
    threads = [threading.Thread(target=work, args=(join(sweep), sweep, tmp_path, 60.0)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = trial_rows(join(sweep), sweep)
    assert [row.state for row in rows] == ["complete"] * 4
    assert Counter(tuple(row.point.values()) for row in rows) == {tuple(point.values()): 1 for point in sweep.points()}
    assert sorted(training.folders) == [f"{number:04d}" for number in range(4)]


@pytest.mark.parametrize("sweep", [GRID, SEARCH], ids=["grid", "search"])
def test_the_trial_of_a_dead_worker_is_resumed_in_its_folder(join, training, tmp_path, sweep):
    dead, study = join(sweep), join(sweep)

    class Killed(BaseException):
        """Optuna does not see it: the trial stays as kill -9 leaves it."""

    def killed(config, folder, callbacks, is_trial):
        folder.mkdir(parents=True)
        assert not callbacks[0].on_validation(50, {sweep.metric_key: 9.0})
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(worker, "train_run", killed)
        work(dead, sweep, tmp_path, 60.0)
    (begun,) = trial_rows(study, sweep)
    assert begun.state == "running"
    with study._storage._backend.engine.begin() as connection:
        connection.execute(text("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'"))
    work(study, sweep, tmp_path, 60.0)
    count = len(sweep.points())
    assert states(study, sweep) in (["complete"] * count, ["complete"] * (count - 1) + ["pruned"])
    assert Counter(training.folders) == {f"{number:04d}": 1 for number in range(count)}
    assert [len(attempts) for attempts in trials_of(study)] == [2] + [1] * (count - 1)
    resumed = trials_of(study)[0][1]
    assert trial_rows(study, sweep)[0].point == begun.point
    assert resumed.intermediate_values[50] == 9.0, "what the dead worker reported still counts for pruning"


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_a_trial_that_kills_its_workers_fails(join, monkeypatch):
    monkeypatch.setattr("transformer_jax.tools.study.optuna_study.MAX_RETRIES", 3)
    study = join(ONE)

    def kill():
        trial = study.ask()
        study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        study._storage.get_heartbeat_stale_trial_callback()(study, study.get_trials()[-1])
        return states(study, ONE)[0]

    def stop():
        trial = study.ask()
        study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        retry(study, study.get_trials()[-1])

    assert kill() == kill() == "waiting"
    stop()
    assert [kill() for _ in range(3)] == ["waiting", "waiting", "failed"], "counted anew after the stop"
    assert "its workers died again and again" in trial_rows(study, ONE)[0].error
    retry_failed(study, ONE)
    assert kill() == "waiting"


def test_a_worker_whose_heartbeats_did_not_arrive_leaves_its_trial_to_the_other(join, training, tmp_path):
    study, other = join(ONE), join(ONE)

    def lose(config):
        if len(training.folders) == 1:
            (running,) = other.get_trials(states=(TrialState.RUNNING,))
            other._storage.set_trial_state_values(running._trial_id, TrialState.FAIL)
            retry(other, running)

    training.before = lose
    work(study, ONE, tmp_path, 60.0)
    assert (states(study, ONE), training.folders) == (["complete"], ["0000", "0000"])


def test_a_command_with_some_rows_leaves_the_trials_of_others(join, training, tmp_path):
    other = replace(GRID, rows={"b": GRID.rows["b"]})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(worker, "train_run", lambda *run, is_trial: Outcome(3, "interrupted", None, "", signal=15))
        work(join(other), other, tmp_path, 60.0)
    only = replace(GRID, rows={"a": {}})
    study = join(only)
    assert "1 waiting of 3." in str(write_leaderboard(only, trial_rows(study, only), tmp_path))
    work(study, only, tmp_path, 60.0)
    assert states(study, GRID) == ["waiting", "complete", "complete"]
    work(join(GRID), GRID, tmp_path, 60.0)
    assert states(study, GRID) == ["complete"] * 4
    assert training.folders == ["0001", "0002", "0000", "0003"]


def test_a_trial_that_is_interrupted_waits_and_a_poor_trial_is_pruned(join, training, tmp_path, monkeypatch):
    study = join(SEARCH)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as stopped:
        patch.setattr(worker, "train_run", lambda *run, is_trial: Outcome(3, "interrupted", None, "", signal=15))
        work(study, SEARCH, tmp_path, 60.0)
    assert stopped.value.args == (15,)
    assert states(study, SEARCH) == ["waiting"]
    point = trial_rows(study, SEARCH)[0].point
    training.value = lambda config: float([1, 2, 3, 4, 9][len(training.folders) - 1])
    work(study, SEARCH, tmp_path, 60.0)
    assert states(study, SEARCH) == ["complete"] * 4 + ["pruned"]
    assert trial_rows(study, SEARCH)[0].point == point
    assert training.folders == [f"{number:04d}" for number in range(5)]


def test_failures_that_others_may_share_end_the_worker(join, training, tmp_path, capsys):
    study = join(GRID)
    training.before = raises(SaveFailed("checkpoints: the disk is full"))
    with pytest.raises(ConfigError, match="the disk is full"):
        work(study, GRID, tmp_path, 60.0)
    assert states(study, GRID) == ["waiting"]
    training.before = raises(DataError("data.directory: 'nowhere' is not a folder"))
    with pytest.raises(ConfigError, match="3 trials in a row failed, the last with: DataError: data.directory"):
        work(study, GRID, tmp_path, 60.0)
    assert "Traceback" not in capsys.readouterr().err
    retry_failed(study, GRID)
    training.before = raises(TrainingDiverged("update 3: loss nan\nand more lines"))
    work(study, GRID, tmp_path, 60.0)
    assert [row.error for row in trial_rows(study, GRID)] == ["TrainingDiverged: update 3: loss nan"] * 4


def test_a_sweep_may_grow_and_another_sweep_is_refused(join, training, tmp_path):
    for sweep in (ONE, GRID, GRID):
        work(join(sweep), sweep, tmp_path, 60.0)
    points = [tuple(row.point.values()) for row in trial_rows(join(GRID), GRID)]
    assert points == [("a", 3), ("a", 4), ("b", 3), ("b", 4)]
    with pytest.raises(ConfigError, match=r"started with row b = .*64.*not .*32.*a --workdir of another name"):
        join(replace(GRID, rows={"a": {}, "b": {"model.d_ff": 32}}))
    with pytest.raises(ConfigError, match="started with setting model.dropout"):
        join(replace(GRID, overrides={"model.dropout": 0.25}))


def test_each_machine_has_its_own_paths_of_the_data(join):
    for folder in ("/first", "/second"):
        paths = {f"data.{split}": f"{folder}/{split}.en,{folder}/{split}.de" for split in ("train", "validation")}
        sweep = replace(ONE, overrides={"data.source": "text", **paths})
        join(sweep)
    with pytest.raises(ConfigError, match="started with setting data.train_split = train, not other"):
        join(replace(sweep, overrides={**sweep.overrides, "data.train_split": "other"}))


def test_a_sampler_chooses_as_many_trials_as_stated(join, training, tmp_path):
    space = {"optimizer.learning_rate": LogUniform(1e-4, 1e-2), "model.dropout": Uniform(0.0, 0.5)}
    sweep = Sweep(config="configs/quickstart.py", space=space, sampler="cma-es", trials=2, metric="validation/loss")
    training.value = lambda config: config.model.dropout
    work(join(sweep), sweep, tmp_path, 60.0)
    more = replace(sweep, trials=4)
    work(join(more), more, tmp_path, 60.0)
    rows = trial_rows(join(more), more)
    assert [row.state for row in rows] == ["complete"] * 4
    assert all(row.value == pytest.approx(row.point["model.dropout"] - 0.2) for row in rows)
    assert len({row.point["optimizer.learning_rate"] for row in rows}) == 4


@pytest.mark.parametrize("url", ["postgresql+psycopg://me:secret@127.0.0.1:1/x", "nonsense://x", "secret"])
def test_a_database_that_cannot_be_opened_is_a_message_without_its_password(url, monkeypatch, tmp_path):
    monkeypatch.setenv(STORAGE_VARIABLE, url)
    monkeypatch.setattr("transformer_jax.tools.study.optuna_study.PAUSES", (0.0,))
    with pytest.raises(ConfigError, match=f"{STORAGE_VARIABLE}: the database cannot be opened") as caught:
        open_study(GRID, tmp_path, "study", 60.0)
    assert "secret" not in str(caught.value)
