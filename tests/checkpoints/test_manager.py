"""Checkpoints: what is kept, what comes back, and what a damaged one does."""

import errno
import math
import shutil
import subprocess
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from transformer_jax.checkpoints import manager
from transformer_jax.checkpoints.disk import DigestedFolder
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.reader import CheckpointReader, on_host
from transformer_jax.checkpoints.save_failure import SaveFailed
from transformer_jax.config import ExperimentConfig, MeshConfig, Metric, hyperparameters_of
from transformer_jax.files import file_digests
from transformer_jax.files.file_digests import DIGESTS, changed_files, write_digests
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.selection import best_step, chosen_step, steps_to_average
from transformer_jax.run_directory.stored_checkpoints import CheckpointError, CheckpointUnread, stored_checkpoints
from transformer_jax.runs.run import Counters
from transformer_jax.training.optimizers import make_optimizer
from transformer_jax.training.sharding import make_mesh, state_shardings
from transformer_jax.training.state import TrainState, create_state

OPTIMIZER = make_optimizer("adam", hyperparameters_of(ExperimentConfig()), lambda step: 0.1, 0)

BLEU = Metric("bleu", "maximize")


def init(key: jax.Array) -> dict:
    # Large enough that tensorstore gives it a file of its own.
    return {"source_embedding": {"table": jax.random.normal(key, (256, 128))}}


@cache
def first_state(mesh_config: MeshConfig, devices: int) -> TrainState:
    mesh, state = make_mesh(mesh_config, jax.devices()[:devices]), create_state(init, OPTIMIZER.init, 0)
    return jax.device_put(state, state_shardings(state, mesh))


def state_at(step: int, mesh_config: MeshConfig | None = None, devices: int = 1) -> TrainState:
    state = first_state(mesh_config or MeshConfig(data=1), devices)
    params = jax.tree.map(lambda leaf: leaf + step, state.params)
    return state._replace(step=state.step + step, params=params)


def table_of(state: TrainState) -> np.ndarray:
    return np.asarray(state.params["source_embedding"]["table"])


def save(folder: Path, scores: dict[int, float | None]) -> None:
    """Writes checkpoints with these scores, by step."""
    with closing(Checkpoints(folder)) as checkpoints:
        for step, score in scores.items():
            checkpoints.save(state_at(step), {"counters": {"step": step}}, score)


def test_the_last_and_the_best_are_kept(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        chosen_step(run, "best")
    with closing(Checkpoints(run.checkpoints, keep_last=2, keep_best=1)) as checkpoints:
        for step, bleu in ((1, 10.0), (2, 30.0), (3, math.nan), (4, 20.0), (5, None)):
            checkpoints.save(state_at(step), {"counters": {"step": step}}, bleu)
            checkpoints.wait()
        assert checkpoints.steps() == [2, 4, 5]
        assert checkpoints.progress(4) == {"counters": {"step": 4}}
    (run.checkpoints / "6.orbax-checkpoint-tmp-123" / "params").mkdir(parents=True)
    with closing(Checkpoints(run.checkpoints)) as again:
        assert again.steps() == [2, 4, 5], "a half-written one is never seen"
    assert [chosen_step(run, which) for which in ("best", "last", "4")] == [2, 5, 4]
    with pytest.raises(CheckpointError, match=r"no checkpoint '3'; kept are 2, 4, 5 \(best 2, last 5\)"):
        chosen_step(run, "3")


def test_a_checkpoint_whose_validation_was_cut_short_gets_its_score(tmp_path):
    with closing(Checkpoints(tmp_path / "checkpoints", keep_last=1, keep_best=1)) as checkpoints:
        for step in (1, 2):
            checkpoints.save(state_at(step), {"is_validation_due": step == 2})
            checkpoints.wait()
        checkpoints.remove_unless_only(2)
        for step, score in ((2, 20.0), (3, 15.0)):
            checkpoints.save(state_at(step), {"is_validation_due": False}, score)
            checkpoints.wait()
        assert checkpoints.steps() == [2, 3]


def test_an_average_is_restored_for_evaluation_and_the_state_for_training(tmp_path):
    with closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        state = state_at(1)
        average = jax.tree.map(lambda leaf: leaf * 2, state.params)
        checkpoints.save(state, {"counters": {}}, None, average)
        checkpoints.wait()
        restored, _ = checkpoints.restore(1, state)
        np.testing.assert_array_equal(table_of(restored), table_of(state))
        evaluated = checkpoints.restore_params(1, state.params)
        np.testing.assert_array_equal(evaluated["source_embedding"]["table"], 2 * table_of(state))


def test_a_state_comes_back_to_the_bit_on_any_mesh(tmp_path):
    with closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        saved = state_at(7, MeshConfig(data=2, fsdp=2, tensor=2), 8)
        checkpoints.save(saved, {"a": [1.1, None]})
        checkpoints.wait()
        for mesh, devices in ((MeshConfig(data=1), 1), (MeshConfig(data=1, fsdp=4), 4)):
            like = state_at(0, mesh, devices)
            restored, progress = checkpoints.restore(7, like)
            assert progress == {"a": [1.1, None]}
            for left, right, wanted in zip(*map(jax.tree.leaves, (saved, restored, like)), strict=True):
                np.testing.assert_array_equal(left, right)
                assert right.sharding == wanted.sharding


def test_parameters_are_averaged(tmp_path):
    run, like = RunDirectory(tmp_path), state_at(0).params
    save(run.checkpoints, dict.fromkeys((0, 2, 4, 9)))
    assert steps_to_average(run, "last", 3) == [2, 4, 9]
    average = CheckpointReader(run.checkpoints).restore_average([2, 4, 9], like)
    expected = np.asarray(like["source_embedding"]["table"]) + 5
    np.testing.assert_allclose(average["source_embedding"]["table"], expected, rtol=1e-6)
    with pytest.raises(CheckpointError, match=r"4 checkpoints to average, but up to 9 there are \[2, 4, 9\]"):
        steps_to_average(run, "last", 4)


def test_parameters_alone_are_read_without_knowing_the_model(tmp_path):
    with closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        checkpoints.save(state_at(1), {})
        checkpoints.save_params(5, jax.tree.map(np.asarray, state_at(5).params), {"average_of": [4, 5]})
        checkpoints.wait()
        assert chosen_step(RunDirectory(tmp_path), "best") == 5
        assert checkpoints.shapes(5, "rest") == {}
        assert checkpoints.shapes(1, "rest")["key_data"].shape == (2,)
        shapes = checkpoints.shapes(5)
        assert shapes["source_embedding"]["table"].shape == (256, 128)
        for step in (1, 5):
            restored = checkpoints.restore_params(step, on_host(shapes))["source_embedding"]["table"]
            assert type(restored) is np.ndarray
            np.testing.assert_array_equal(restored, table_of(state_at(step)))
        with pytest.raises(CheckpointError, match="the description of the checkpoint cannot be read"):
            checkpoints.shapes(3)


def largest_file(folder: Path) -> Path:
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


# Where one file of several fails, Orbax ends its event loop while the others are still being read;
# they complain into the air.
READS_LEFT_BEHIND = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@READS_LEFT_BEHIND
@pytest.mark.parametrize("item", ["params", "rest", "progress", "metrics", "metrics removed"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(tmp_path, item):
    save(tmp_path / "checkpoints", {1: 1.0, 2: 2.0})
    folder = tmp_path / "checkpoints" / "2" / item
    named = {"progress": folder / "metadata", "rest": folder / "manifest.ocdbt", "metrics": folder / "metrics"}
    if item == "metrics removed":
        shutil.rmtree(folder.with_name("metrics"))
    else:
        victim = named.get(item) or largest_file(folder)
        victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    with closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        state, progress, complaints = checkpoints.restore_newest(state_at(0))
        assert int(state.step) == 1
        assert progress == {"counters": {"step": 1}}
        np.testing.assert_array_equal(table_of(state), table_of(state_at(1)))
        assert len(complaints) == 1
        assert "checkpoint 2 is damaged" in complaints[0]
        assert (tmp_path / "damaged-2").is_dir()
        checkpoints.save(state_at(2), {})
        checkpoints.wait()
        assert checkpoints.steps() == [1, 2]


@pytest.mark.parametrize("is_digested", [True, False])
def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(tmp_path, monkeypatch, is_digested):
    save(tmp_path / "checkpoints", {1: None, 2: None})

    def fail(*arguments, **options):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(*((ocp.PyTreeCheckpointHandler, "restore") if is_digested else (file_digests, "_crc")), fail)
    problem = (
        "checkpoint 2 cannot be read, but its files seem undamaged .*Stale file handle.*; run the same command again"
    )
    with closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        with pytest.raises(CheckpointUnread, match=problem):
            checkpoints.restore_newest(state_at(0))
        monkeypatch.undo()
        # Of several processes that could read it, all end with the one that cannot.
        monkeypatch.setattr(manager, "all_agree", lambda here, name: False)
        with pytest.raises(CheckpointUnread, match="cannot be read by another process; run the same command again"):
            checkpoints.restore_newest(state_at(0))
        assert checkpoints.steps() == [1, 2]


def test_a_flipped_bit_in_any_file_is_damage_or_changes_nothing(tmp_path):
    save(tmp_path / "checkpoints", {1: 1.0})
    folder = tmp_path / "checkpoints" / "1"
    files = [path for path in folder.rglob("*") if path.is_file()]
    refused = []
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content[:-3] + bytes([content[-3] ^ 4]) + content[-2:])
        try:
            # The score is not restored.
            if not all(checkpoint.is_sound for checkpoint in stored_checkpoints(tmp_path / "checkpoints")):
                raise CheckpointError("score")
            restored = CheckpointReader(tmp_path / "checkpoints").restore(1, state_at(1))
            assert restored[1] == {"counters": {"step": 1}}
            jax.tree.map(np.testing.assert_array_equal, restored[0], state_at(1))
        except CheckpointError:
            refused.append(file.relative_to(folder).as_posix())
        file.write_bytes(content)
    assert {"metrics/metrics", "progress/metadata"} <= set(refused)
    assert len(refused) >= len(files) - 3


def test_without_digests_a_checkpoint_is_read_and_parameters_that_are_not_finite_are_damage(tmp_path, capsys):
    folder, saved = tmp_path / "checkpoints", state_at(1)
    with closing(Checkpoints(folder)) as checkpoints:
        checkpoints.save(saved, {})
        broken = jax.tree.map(lambda leaf: leaf.at[0, 0].set(np.inf), saved.params)
        checkpoints.save(state_at(2)._replace(params=broken), {})
    for step in (1, 2):
        (folder / str(step) / DIGESTS).unlink()
    reader = CheckpointReader(folder)
    found = reader.restore_params(1, saved.params)["source_embedding"]["table"]
    np.testing.assert_array_equal(found, table_of(saved))
    problem = "restored parameters are not finite: checkpoint 2 is damaged; use --checkpoint=1"
    with pytest.raises(CheckpointError, match=problem):
        reader.restore_params(2, saved.params)
    assert capsys.readouterr().err.count("without digests") == 1


@READS_LEFT_BEHIND
def test_a_model_that_fits_no_checkpoint_moves_none(tmp_path):
    save(tmp_path / "checkpoints", {1: None})
    other = state_at(0)
    other = other._replace(params={"projection": other.params["source_embedding"]})
    problem = r"no checkpoint can be read: checkpoint 1 does not fit the model \(only the checkpoint has "
    names = "source_embedding/table; only the model has projection/table"
    with closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        with pytest.raises(CheckpointError, match=problem + names):
            checkpoints.restore_newest(other)
        longer = jax.tree.map(lambda leaf: jax.device_put(np.zeros((9, 9)), leaf.sharding), state_at(0).params)
        with pytest.raises(CheckpointError, match=r"does not fit the model \(.* in the checkpoint, .* in the model"):
            checkpoints.restore_newest(state_at(0)._replace(params=longer))
        without = state_at(0)._replace(optimizer_state=())
        with pytest.raises(CheckpointError, match=r"does not fit the model \(only the checkpoint has optimizer_state/"):
            checkpoints.restore_newest(without)
        assert checkpoints.steps() == [1]


@READS_LEFT_BEHIND
def test_when_every_score_is_damaged_nothing_is_moved(tmp_path):
    folder = tmp_path / "checkpoints"
    save(folder, {1: 1.0})
    (folder / "1" / "metrics" / "metrics").write_text("{")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="the scores in it are damaged; move it away"):
            Checkpoints(folder)
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoints"]


def test_a_save_that_fails_before_its_commit_is_not_the_last(tmp_path, monkeypatch):
    commit = DigestedFolder.finalize

    async def fail(self):
        if self.get_final().name == "2":
            raise OSError(errno.EIO, "Input/output error")
        await commit(self)

    run = RunDirectory(tmp_path)
    checkpoints = Checkpoints(run.checkpoints)
    checkpoints.save(state_at(1), {"counters": {"step": 1}})
    checkpoints.wait()
    with (
        monkeypatch.context() as patch,
        pytest.raises(SaveFailed, match=r"Input/output error.*newest whole checkpoint: 1"),
    ):
        patch.setattr(DigestedFolder, "finalize", fail)
        checkpoints.save(state_at(2), {})
        checkpoints.wait()
    assert checkpoints.steps() == [1] and chosen_step(run, "last") == 1
    state, progress, _ = checkpoints.restore_newest(state_at(0))
    assert (int(state.step), progress) == (1, {"counters": {"step": 1}})
    with suppress(SaveFailed):
        checkpoints.close()


def copy_in_any_order(source: Path, target: Path, count: int) -> None:
    """Copies ``count`` files as rsync does: each under another name first, and not in the order in
    which they were written."""
    for file in sorted((path for path in source.rglob("*") if path.is_file()), key=lambda file: file.name)[:count]:
        there = target / file.relative_to(source)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, there.with_name(f".{file.name}.x7Kq2b"))
        there.with_name(f".{file.name}.x7Kq2b").rename(there)


@READS_LEFT_BEHIND
@pytest.mark.parametrize("has_marker", [True, False])
def test_copied_checkpoints_are_read_and_an_unfinished_copy_is_damage(tmp_path, has_marker):
    source = tmp_path / "run" / "checkpoints"
    save(source, {1: 1.0, 2: 2.0})
    if not has_marker:  # As earlier versions of Orbax wrote them.
        for marker in [*source.rglob("commit_success.txt"), *source.rglob(DIGESTS)]:
            marker.unlink()
    subprocess.run(["cp", "-r", source.parent, tmp_path / "by cp"], check=True)
    number = sum(path.is_file() for path in source.rglob("*"))
    copy_in_any_order(source, tmp_path / "by rsync" / "checkpoints", number)
    for name in ("by cp", "by rsync"):
        with closing(Checkpoints(tmp_path / name / "checkpoints")) as checkpoints:
            state, _, complaints = checkpoints.restore_newest(state_at(0))
            np.testing.assert_array_equal(table_of(state), table_of(state_at(2)))
            assert complaints == [] and checkpoints.steps() == [1, 2]
    if has_marker:
        cut = tmp_path / "cut" / "checkpoints"
        shutil.copytree(source / "1", cut / "1")
        copy_in_any_order(source / "2", cut / "2", number // 4)
        with closing(Checkpoints(cut)) as checkpoints:
            state, _, complaints = checkpoints.restore_newest(state_at(0))
            assert int(state.step) == 1 and "checkpoint 2 is damaged" in complaints[0]


def test_of_equal_scores_the_newest_is_best(tmp_path):
    scores = {1: 1.0, 2: 3.0, 3: 3.0, 4: 2.0}
    save(tmp_path / "checkpoints", scores)
    assert best_step(stored_checkpoints(RunDirectory(tmp_path).checkpoints), BLEU) == 3
    counters = Counters()
    assert [counters.add_validation(bleu, BLEU) for bleu in scores.values()] == [True, True, True, False]
    assert counters.evaluations_without_gain == 2
    assert not Counters().add_validation(math.nan, BLEU), "a metric may be undefined at first"
    assert Counters(best=math.nan).add_validation(1.0, BLEU), "a run of an earlier version"


def test_digests_of_nothing_and_files_without_digests_are_damage(tmp_path):
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "x").write_bytes(b"abc")
    write_digests(tmp_path)
    (tmp_path / "params" / f"x.{'0' * 32}.partial").write_bytes(b"left by a kill")
    assert changed_files(tmp_path, ["params"]) == []
    (tmp_path / "params" / "y").write_bytes(b"added")
    assert changed_files(tmp_path, ["params"]) == ["params/y"]
    assert changed_files(tmp_path, ["rest"]) == []
    (tmp_path / DIGESTS).write_text("{}")
    assert changed_files(tmp_path, ["params"]) == [DIGESTS]
