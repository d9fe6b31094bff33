"""Which trials a worker trains at a time, and what it does when that does not go well; runs pretend."""

import json
import threading
from dataclasses import replace

import pytest
from tools.sweeps.studies import GRID, SEARCH

from transformer_jax.config import ConfigError, DataError
from transformer_jax.runs.run import Outcome, TrainingDiverged
from transformer_jax.runs.run_directory import RunIsBusy
from transformer_jax.tools.sweeps.definition import Sweep, require_vectorizable
from transformer_jax.tools.sweeps.overview import rows
from transformer_jax.tools.sweeps.ranges import LogUniform
from transformer_jax.tools.sweeps.scheduler import Scheduler
from transformer_jax.tools.sweeps.study import SharedStudy
from transformer_jax.tools.sweeps.trial_folder import folder_of
from transformer_jax.tools.sweeps.worker import Worker

ALIKE = Sweep(
    config="configs/quickstart.py",
    rows={"a": {}, "b": {"model.d_ff": 64}},
    seeds=(0, 1, 2, 3, 4),
    overrides={"data.seed": 0},
    metric="validation/loss",
)


class Pretended:
    """Writes down which trials were trained together."""

    def __init__(self) -> None:
        self.packs: list[list[int]] = []

    def together(self, configs, folders, should_stops, on_end):
        self.packs.append([int(folder.name) for folder in folders])
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "metrics.jsonl").write_text('{"step": 5, "validation/loss": 1.5}\n')
            (folder / "goodput.json").write_text(json.dumps({"seconds": {"step": 60.0 / len(folders)}}))
        endings = [self.ending(folder.name) for folder in folders]
        for place, ending in enumerate(endings):
            on_end(place, ending)
        if any(getattr(ending, "reason", "") == "interrupted" for ending in endings):
            raise KeyboardInterrupt

    def ending(self, name):
        return Outcome(5, "finished", None, "")


def work(sweep, storage, folder, pretended, pack=4):
    study = SharedStudy(sweep, storage, "s")
    Worker(study, folder, pretended.together, pack).work()
    return rows(study)


def test_trials_that_differ_in_numbers_go_together_and_share_the_minutes(storage, tmp_path):
    pretended = Pretended()
    found = work(ALIKE, storage, tmp_path, pretended)
    assert pretended.packs == [[0, 1, 2, 3], [4], [5, 6, 7, 8], [9]]
    assert [row.state for row in found] == ["complete"] * 10
    assert [row.minutes for row in found] == [*[0.25] * 4, 1.0] * 2


def test_trials_with_other_checkpoints_or_of_another_structure_do_not(storage, tmp_path):
    (tmp_path / "trials" / "0002" / "checkpoints" / "7").mkdir(parents=True)
    pretended = Pretended()
    work(ALIKE, storage, tmp_path, pretended)
    assert [2] in pretended.packs
    assert sorted(number for pack in pretended.packs for number in pack) == list(range(10))
    assert all(max(pack) < 5 or min(pack) >= 5 for pack in pretended.packs)


def test_a_search_goes_together_where_its_choices_allow(storage, tmp_path):
    pretended = Pretended()
    found = work(SEARCH, storage, tmp_path, pretended, pack=5)
    assert sorted(number for pack in pretended.packs for number in pack) == list(range(5))
    layers = {row.number: row.point["model.num_encoder_layers"] for row in found}
    assert all(len({layers[number] for number in pack}) == 1 for pack in pretended.packs)


def test_a_search_of_numbers_goes_together(storage, tmp_path):
    space = {"optimizer.learning_rate": LogUniform(1e-4, 1e-2)}
    pretended = Pretended()
    work(replace(SEARCH, space=space), storage, tmp_path, pretended, pack=3)
    assert pretended.packs == [[0, 1, 2], [3, 4]]


def test_of_several_each_ends_by_itself(storage, tmp_path):
    pretended = Pretended()
    pretended.ending = lambda name: (
        TrainingDiverged("update 3: loss nan") if name == "0001" else Outcome(5, "finished", None, "")
    )
    found = work(ALIKE, storage, tmp_path, pretended)
    assert [row.number for row in found if row.state == "failed"] == [1]
    assert found[1].error == "TrainingDiverged: update 3: loss nan"


def test_what_cannot_go_together_is_trained_one_after_another(storage, tmp_path):
    pretended = Pretended()
    original = pretended.together

    def together(configs, folders, should_stops, on_end):
        if len(folders) > 2:
            raise RuntimeError("RESOURCE_EXHAUSTED")
        return original(configs, folders, should_stops, on_end)

    pretended.together = together
    assert [row.state for row in work(ALIKE, storage, tmp_path, pretended)] == ["complete"] * 10
    assert max(map(len, pretended.packs)) == 2


def test_the_trial_that_spoils_a_pack_fails_alone_and_packs_stay_as_large(storage, tmp_path):
    pretended = Pretended()
    original = pretended.together

    def together(configs, folders, should_stops, on_end):
        if any(folder.name == "0001" for folder in folders):
            raise DataError("metrics.jsonl, line 2: not a record")
        return original(configs, folders, should_stops, on_end)

    pretended.together = together
    found = work(ALIKE, storage, tmp_path, pretended)
    assert [row.number for row in found if row.state != "complete"] == [1]
    assert found[1].error == "DataError: metrics.jsonl, line 2: not a record"
    assert pretended.packs == [[0], [2], [3], [4], [5, 6, 7, 8], [9]]


def test_trials_that_are_added_go_together_though_one_was_begun_anew_before(storage, tmp_path):
    pretended = Pretended()
    pretended.ending = lambda name: TrainingDiverged("loss nan") if name == "0000" else Outcome(5, "finished", None, "")
    small = replace(SEARCH, space={"optimizer.learning_rate": LogUniform(1e-4, 1e-2)}, trials=2)
    work(small, storage, tmp_path, pretended)
    SharedStudy(small, storage, "s").retry_failed()
    found = work(replace(small, trials=5), storage, tmp_path, pretended)
    assert pretended.packs == [[0, 1], [0], [2, 3, 4]]
    assert [row.state for row in found] == ["failed", *["complete"] * 4]


def test_who_has_ended_says_no_more_that_it_lives(storage, tmp_path):
    beating = []

    def together(configs, folders, should_stops, on_end):
        for place in range(len(folders)):
            on_end(place, TrainingDiverged("loss nan"))
            beating.append(sum(thread.name == "heartbeat" for thread in threading.enumerate()))

    Worker(SharedStudy(replace(ALIKE, rows={"a": {}}), storage, "s"), tmp_path, together, 5).work()
    assert beating == [4, 3, 2, 1, 0]


def test_what_was_claimed_is_put_back_when_the_study_cannot_be_reached(storage, tmp_path, monkeypatch):
    # Claimed, found to have other checkpoints, and to be put back.
    (tmp_path / "trials" / "0002" / "checkpoints" / "7").mkdir(parents=True)
    study = SharedStudy(ALIKE, storage, "s")
    put_back, answers = study.put_back, iter([False])

    def sometimes(trial):
        if not next(answers, True):
            raise OSError("server closed the connection")
        put_back(trial)

    monkeypatch.setattr(study, "put_back", sometimes)
    with pytest.raises(OSError, match="server closed"):
        Scheduler(study, tmp_path, 4).take(lambda trial, error: None)
    assert [row.state for row in rows(study)] == ["waiting"] * 10


def test_what_ended_before_the_others_failed_has_ended(storage, tmp_path):
    pretended = Pretended()
    original = pretended.together

    def together(configs, folders, should_stops, on_end):
        if len(folders) == 4:
            original(configs[:1], folders[:1], should_stops[:1], on_end)
            raise RuntimeError("the others are lost")
        return original(configs, folders, should_stops, on_end)

    pretended.together = together
    assert [row.state for row in work(ALIKE, storage, tmp_path, pretended)] == ["complete"] * 10
    assert sorted(number for pack in pretended.packs for number in pack) == list(range(10))


def test_what_is_stopped_together_is_offered_anew(storage, tmp_path):
    pretended = Pretended()
    pretended.ending = lambda name: Outcome(3, "interrupted", None, "")
    study = SharedStudy(ALIKE, storage, "s")
    with pytest.raises(KeyboardInterrupt):
        Worker(study, tmp_path, pretended.together, 4).work()
    assert [row.state for row in rows(study)] == ["waiting"] * 10


def test_a_folder_that_is_in_use_is_left_for_a_while(storage, tmp_path):
    pretended = Pretended()
    original = pretended.together

    def together(configs, folders, should_stops, on_end):
        busy = folder_of(tmp_path, 2)
        # Somebody trains there until all others have ended.
        if busy in folders and len(pretended.packs) < 3:
            raise RunIsBusy("another process is training", busy)
        return original(configs, folders, should_stops, on_end)

    pretended.together = together
    study = SharedStudy(ALIKE, storage, "s", grace_seconds=0.6)
    Worker(study, tmp_path, together, 4).work()
    assert pretended.packs == [[0, 1, 3, 4], [5, 6, 7, 8], [9], [2]]
    assert [row.state for row in rows(study)] == ["complete"] * 10


def test_a_sweep_without_two_that_are_alike_is_refused():
    require_vectorizable(ALIKE)
    require_vectorizable(SEARCH)
    with pytest.raises(
        ConfigError, match="no two trials differ in hyperparameters alone; with data.seed=0 all seeds read"
    ):
        require_vectorizable(GRID)
    with pytest.raises(ConfigError, match="does not use the 1 devices that each model has with --vectorize"):
        require_vectorizable(replace(ALIKE, overrides={"data.seed": 0, "mesh.fsdp": 2}))
