"""Local checkpoints: what comes back, and which are left alone."""

import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.checkpoints import local
from transformer_jax.checkpoints.local import LocalCheckpoints
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import ConfigError, MeshConfig
from transformer_jax.config.optimization import TrainingConfig
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.object_store import StoreError
from transformer_jax.runtime.open_copies import OPEN
from transformer_jax.training.sharding import make_mesh, state_shardings
from transformer_jax.training.state import TrainState

MESH = MeshConfig(data=2, fsdp=2, tensor=2)


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunDirectory:
    """The folder of a run that was started and has a checkpoint of update 2."""
    monkeypatch.setenv("TRANSFORMER_JAX_SCRATCH", str(tmp_path / "scratch"))
    directory = RunDirectory(tmp_path / "run")
    with closing(Checkpoints(directory.checkpoints)) as checkpoints:
        checkpoints.save(at(2), {"counters": 2})
    directory.run_record.write_text(json.dumps([{"started": "now"}]))
    return directory


def at(step: int, mesh: MeshConfig = MESH, devices: int = 8) -> TrainState:
    """Some arrays are divided between devices, others replicated; the table has a file of its own."""
    table = jax.random.normal(jax.random.key(0), (256, 128))
    state = TrainState(
        step=jnp.int32(step),
        params={"source_embedding": {"table": table + step}, "norm": {"scale": jnp.arange(8.0)}},
        optimizer_state=({"mu": table.astype(jnp.bfloat16)}, ()),
        key_data=jax.random.key_data(jax.random.key(step)),
    )
    return jax.device_put(state, state_shardings(state, make_mesh(mesh, jax.devices()[:devices])))


def largest_file(folder: Path) -> Path:
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def save(run: RunDirectory, *steps: int) -> Path:
    """Saves the states of these updates in a run that is killed; returns their folder."""
    with closing(LocalCheckpoints(run, 1)) as checkpoints:
        for step in steps:
            checkpoints.save(at(step), {"counters": step})
    (folder,) = (run.path.parent / "scratch").glob("local-*/0")
    return folder


def restored(run: RunDirectory, like: TrainState | None = None, every: int = 1, *, is_logged: bool = True) -> tuple:
    """Update, counters and notes of what the next start restores."""
    with closing(Checkpoints(run.checkpoints)) as checkpoints, closing(LocalCheckpoints(run, every)) as here:
        state, progress, notes = here.restore_newest(checkpoints, like or at(0), lambda step, progress: is_logged)
        saved = at(int(state.step))
        for left, right, wanted in zip(*map(jax.tree.leaves, (saved, state, like or at(0))), strict=True):
            np.testing.assert_array_equal(left, right)
            assert right.sharding == wanted.sharding
    return int(state.step), progress["counters"], notes


def test_the_newest_of_two_comes_back_to_the_bit(run):
    folder = save(run, 3, 4, 5)
    assert sorted(each.name for each in folder.iterdir()) == ["4", "5"]
    assert restored(run) == (5, 5, [f"restored local checkpoint 5 in {folder}"])
    assert restored(run, every=0) == (2, 2, [])
    # Restoring removes nothing; the first save removes what was not restored.
    assert restored(run)[0] == 5
    with closing(LocalCheckpoints(run, 1)) as checkpoints:
        checkpoints.save(at(3), {})
        checkpoints._manager.wait_until_finished()
        assert sorted(each.name for each in folder.iterdir()) == ["3"]
        checkpoints.remove()
    assert not folder.parent.exists(), "a run that ends removes them"


def test_a_checkpoint_of_the_run_directory_that_is_newer_wins_unless_it_is_damaged(run):
    folder = save(run, 3, 4)
    with closing(Checkpoints(run.checkpoints)) as checkpoints:
        checkpoints.save(at(6), {"counters": 6})
    assert restored(run) == (6, 6, [])
    largest_file(run.checkpoints / "6").write_bytes(b"")
    step, _, (damaged, used) = restored(run)
    assert (step, used) == (4, f"restored local checkpoint 4 in {folder}") and "checkpoint 6 is damaged" in damaged


@pytest.mark.parametrize("damage", ["arrays", "progress", "digests"])
def test_a_damaged_one_gives_way_to_the_one_before(run, damage):
    folder = save(run, 3, 4)
    if damage == "arrays":
        victim = largest_file(folder / "4" / "state")
        victim.write_bytes(bytes(victim.stat().st_size))
    else:
        (folder / "4" / {"progress": "progress/metadata", "digests": "digests.json"}[damage]).write_text("{}")
    step, _, (refused, used) = restored(run)
    assert step == 3 and used == f"restored local checkpoint 3 in {folder}"
    assert refused.startswith("local checkpoint 4 not used: damaged")


def test_another_run_mesh_or_log_has_no_use_for_them(run, monkeypatch):
    save(run, 3, 4)
    assert restored(run, at(0, MeshConfig(data=1), 1)) == (
        2,
        2,
        ["local checkpoint 4, 3 not used: written with another mesh or model"],
    )
    assert restored(run, is_logged=False) == (2, 2, ["local checkpoint 4, 3 not used: metrics.jsonl has other records"])
    starts = json.loads(run.run_record.read_text())
    run.run_record.write_text(json.dumps([*starts, {"started": "later"}]))
    assert restored(run)[0] == 4
    run.run_record.write_text(json.dumps([{"started": "later"}]))
    assert restored(run) == (2, 2, ["local checkpoint 4, 3 not used: of another run"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda found: {}, "not on all hosts"),
        (lambda found: {"4": ["another", ""]}, "not from the same start of the run"),
        (lambda found: {"4": [found["4"][0], "damaged"]}, "damaged"),
        (lambda found: {"4": [found["4"][0], "written by 3 processes"]}, "written by 3 processes"),
    ],
)
def test_all_processes_must_have_it_from_one_start(run, monkeypatch, change, problem):
    save(run, 3, 4)
    monkeypatch.setattr(local, "from_all", lambda name, found: [found, change(found) | {"3": found["3"]}])
    step, _, notes = restored(run)
    assert step == 3 and notes[0] == f"local checkpoint 4 not used: {problem}"


def test_another_number_of_processes_ignores_them_in_one_line(run):
    folder = save(run, 3, 4)
    for each in folder.glob("*/progress/metadata"):
        content = json.loads(each.read_text())
        content["local"]["processes"] = 2
        each.write_text(json.dumps(content))
        (each.parents[1] / "digests.json").unlink()
    assert restored(run) == (2, 2, ["local checkpoint 4, 3 not used: written by 2 processes"])


def test_a_save_that_fails_is_reported_and_leaves_nothing(run, monkeypatch, capfd):
    def refuse() -> None:
        raise StoreError("s3://bucket/run: does not answer")

    with closing(LocalCheckpoints(run, 1)) as checkpoints:
        for step in (3, 4):
            checkpoints.save(at(step), {})
        checkpoints._manager.wait_until_finished()
        with monkeypatch.context() as failing:
            failing.setattr(local, "upload_logs", refuse)
            checkpoints.save(at(5), {})
            checkpoints._attempt(checkpoints._manager.wait_until_finished)
        assert "no local checkpoint (s3://bucket/run: does not answer); the run continues" in capfd.readouterr().err
        for step in (6, 7):
            checkpoints.save(at(step), {})
        checkpoints._manager.wait_until_finished()
        assert sorted(each.name for each in checkpoints._folder.iterdir()) == ["6", "7"]


def test_the_log_of_a_run_in_a_store_is_uploaded_before_a_checkpoint_counts(run, monkeypatch, tmp_path):
    complete = []

    def upload() -> None:
        complete.append(sorted(each.name for each in (tmp_path / "scratch").glob("local-*/0/[0-9]") if each.is_dir()))

    def refuse() -> None:
        raise AssertionError("a copy that this process only reads")

    monkeypatch.setitem(OPEN, tmp_path / "trained", SimpleNamespace(lock="held", upload_files=upload))
    monkeypatch.setitem(OPEN, tmp_path / "read", SimpleNamespace(lock=None, upload_files=refuse))
    save(run, 3, 4)
    assert complete == [[], ["3"]]


def test_an_interval_that_saves_nothing_more_is_refused(tmp_path, monkeypatch):
    assert TrainingConfig(local_checkpoint_every=999, evaluate_every=0).local_checkpoint_every == 999
    for other in ({"checkpoint_every": 100}, {"evaluate_every": 100}):
        with pytest.raises(
            ConfigError, match=rf"local_checkpoint_every: 100 is not below training.{next(iter(other))}=100"
        ):
            TrainingConfig(local_checkpoint_every=100, **other)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRANSFORMER_JAX_SCRATCH", str(tmp_path))
    monkeypatch.setattr(local, "scratch_folder", lambda: tmp_path / "file")
    with pytest.raises(ConfigError, match=r"TRANSFORMER_JAX_SCRATCH: .* cannot be made"):
        LocalCheckpoints(RunDirectory(tmp_path / "run"), 1)
