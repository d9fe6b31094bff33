"""What a worker does with trials that succeed, fail, are stopped, or whose study does not answer; runs pretend."""

import csv
from types import SimpleNamespace

import pytest
from optuna.trial import TrialState
from tools.sweeps.studies import GRID, SEARCH, one_by_one

from transformer_jax.__main__ import main
from transformer_jax.checkpoints.save_failure import SaveFailed
from transformer_jax.commands.sweep import STORAGE
from transformer_jax.config import ConfigError, DataError
from transformer_jax.runs.run import Outcome, TrainingDiverged
from transformer_jax.tools.sweeps.definition import load_sweep
from transformer_jax.tools.sweeps.leaderboard import seed_table, trial_table, write_leaderboard
from transformer_jax.tools.sweeps.overview import rows
from transformer_jax.tools.sweeps.storage import StudyLost, open_storage, reaching, unreachable
from transformer_jax.tools.sweeps.study import SharedStudy, number_of
from transformer_jax.tools.sweeps.worker import Worker


def test_work_trains_all_and_says_what_failed(storage, tmp_path):
    def pretend(config, folder, should_stop):
        if config.seed == 4 and config.model.d_ff == 64:
            raise RuntimeError("memory | ran out")
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(
            '{"step": 5, "validation/bleu": 7.5, "validation/chrf": 1}\n{"step": 9, "validation/bleu": 7.0}\n{"st'
        )
        should_stop(5, {"validation/bleu": 7.5})
        return Outcome(9, "finished", 7.5, "")

    study = SharedStudy(GRID, storage, "s")
    Worker(study, tmp_path, one_by_one(pretend)).work()
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


def test_trials_that_diverge_end_no_worker(storage, tmp_path):
    def diverge(config, folder, should_stop):
        return TrainingDiverged("update 3: loss nan\nand more lines")

    study = SharedStudy(GRID, storage, "s")
    Worker(study, tmp_path, one_by_one(diverge)).work()
    assert [row.error for row in rows(study)] == ["TrainingDiverged: update 3: loss nan"] * 4


def test_a_storage_that_never_comes_back_ends_the_worker_with_a_sentence(storage, tmp_path, monkeypatch, capfd):
    study = SharedStudy(GRID, storage, "s", grace_seconds=0.006)

    def gone(*arguments, **options):
        raise FileNotFoundError(2, "No such file or directory", "study.journal")

    def pretend(config, folder, should_stop):
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text('{"step": 5, "validation/bleu": 7.5}\n')
        monkeypatch.setattr(storage, "set_trial_user_attr", gone)
        return Outcome(5, "finished", 7.5, "")

    with pytest.raises(StudyLost, match="cannot be reached: .*the same command resumes"):
        Worker(study, tmp_path, one_by_one(pretend)).work()
    assert "Traceback" not in capfd.readouterr().err


def test_a_storage_that_does_not_answer_is_waited_for(storage, tmp_path, monkeypatch):
    study = SharedStudy(GRID, storage, "s", grace_seconds=0.06)
    broken = iter([True, False] * 50)

    def sometimes(call):
        def flaky(*arguments, **options):
            if next(broken, False):
                raise OSError("server closed the connection")
            return call(*arguments, **options)

        return flaky

    def pretend(config, folder, should_stop):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").write_text('{"step": 5, "validation/bleu": 7.5}\n')
        should_stop(5, {"validation/bleu": 7.5})
        return Outcome(5, "finished", 7.5, "")

    for name in ("claim", "finish", "enqueue_stale_again"):
        monkeypatch.setattr(study, name, sometimes(getattr(study, name)))
    Worker(study, tmp_path, one_by_one(pretend)).work()
    assert [row.state for row in rows(study)] == ["complete"] * 4


def test_who_is_asked_to_stop_too_late_for_an_update_stops_after_the_trial(storage, tmp_path):
    def asked(configs, folders, should_stops, on_end):
        finish(folders[0])
        on_end(0, Outcome(5, "finished", 7.5, ""))
        raise KeyboardInterrupt

    study = SharedStudy(GRID, storage, "s")
    with pytest.raises(KeyboardInterrupt):
        Worker(study, tmp_path, asked).work()
    assert [row.state for row in rows(study)] == ["complete", "waiting", "waiting", "waiting"]


def test_what_goes_wrong_after_a_trial_has_ended_is_told_and_costs_nothing(storage, tmp_path, capsys):
    def undrawn(configs, folders, should_stops, on_end):
        finish(folders[0])
        on_end(0, Outcome(5, "finished", 7.5, ""))
        raise OSError("curves.png: no space left")

    study = SharedStudy(GRID, storage, "s")
    Worker(study, tmp_path, undrawn).work()
    assert [row.state for row in rows(study)] == ["complete"] * 4
    assert "no space left" in capsys.readouterr().err


def finish(folder):
    """Leaves what a run does."""
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 5, "validation/bleu": 7.5}\n')


def test_trial_after_trial_that_fails_ends_the_worker(storage, tmp_path):
    study = SharedStudy(GRID, storage, "s")
    with pytest.raises(ConfigError, match="3 trials in a row failed, the last with: ZeroDivisionError"):
        Worker(study, tmp_path, one_by_one(lambda config, folder, should_stop: 1 / 0)).work()


def test_what_is_stopped_is_offered_anew_and_a_poor_trial_is_pruned(storage, tmp_path):
    study = SharedStudy(SEARCH, storage, "s")
    losses = iter([1.0, 1.1, 1.2, 1.3, 9.0])

    def pretend(config, folder, should_stop):
        folder.mkdir(parents=True, exist_ok=True)
        loss = next(losses)
        (folder / "metrics.jsonl").write_text(f'{{"step": 400, "validation/loss": {loss}}}\n')
        return Outcome(400, "stopped" if should_stop(400, {"validation/loss": loss}) else "finished", None, "")

    with pytest.raises(KeyboardInterrupt):
        Worker(study, tmp_path, one_by_one(lambda *training: Outcome(3, "interrupted", None, ""))).work()
    assert [trial.state for trial in study.trials()] == [TrialState.WAITING] * 5
    Worker(study, tmp_path, one_by_one(pretend)).work()
    assert [row.state for row in rows(study)] == ["complete"] * 4 + ["pruned"]


def test_a_full_disk_ends_the_worker_in_a_line_and_its_trial_is_kept(storage, tmp_path, capsys):
    def fill(config, folder, should_stop):
        raise SaveFailed("checkpoints: the disk is full")

    study = SharedStudy(GRID, storage, "s")
    with pytest.raises(ConfigError, match="the disk is full"):
        Worker(study, tmp_path, one_by_one(fill)).work()
    assert [row.state for row in rows(study)] == ["waiting"] * 4
    assert "Traceback" not in capsys.readouterr().err


def test_what_the_user_can_mend_is_a_line_and_no_traceback(storage, tmp_path, capsys):
    def refuse(config, folder, should_stop):
        raise DataError("data.directory: 'nowhere' is not a folder")

    study = SharedStudy(GRID, storage, "s")
    with pytest.raises(ConfigError, match="3 trials in a row failed"):
        Worker(study, tmp_path, one_by_one(refuse)).work()
    printed = capsys.readouterr().err
    assert "DataError: data.directory: 'nowhere' is not a folder" in printed
    assert "Traceback" not in printed


def test_an_error_of_the_storage_is_shown_without_its_password():
    storage = SimpleNamespace(_backend=SimpleNamespace(url="postgresql://me:hunter2@host/studies"))
    said = unreachable(storage, OSError("no answer from postgresql://me:hunter2@host/studies\nand more"))
    assert said == "the study cannot be reached: no answer from postgresql://me:***@host/studies"
    with pytest.raises(StudyLost, match=r"no answer from .*the same command resumes") as found, reaching(storage):
        raise OSError("no answer from postgresql://me:hunter2@host/studies")
    assert "hunter2" not in str(found.value)


def test_a_sweep_whose_trials_all_fail_ends_with_status_1(tmp_path, monkeypatch, capsys):
    (tmp_path / "sweep.py").write_text(
        "from transformer_jax.tools.sweeps.definition import Sweep\n\n\ndef get_sweep():\n"
        '    return Sweep(config="configs/quickstart.py", rows={"a": {}}, seeds=(3, 4), metric="validation/loss")\n'
    )

    def run_workers(command, environments, logs, look):
        study = SharedStudy(
            load_sweep(str(tmp_path / "sweep.py"), [], []), open_storage(environments[0][STORAGE]), "out"
        )
        while trial := study.claim():
            study.finish(trial, TrialState.FAIL, error="DataError: nothing there")
        return [0]

    monkeypatch.setattr("transformer_jax.tools.sweeps.coordinator.run_workers", run_workers)
    assert main(["sweep", f"--sweep={tmp_path / 'sweep.py'}", f"--workdir={tmp_path / 'out'}", "--workers=1"]) == 1
    assert "all 2 trials failed; --retry_failed tries them again" in capsys.readouterr().err
