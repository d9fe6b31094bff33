"""Runs in an object store: fsspec's memory, and where moto and s3fs are installed a server that speaks S3."""

import hashlib
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import fsspec
import pytest
from etils import epath
from run_settings import UPDATES, tiny_config
from run_steps import assert_same_run, copy_until, train

from transformer_jax.api.loaded_run import load
from transformer_jax.checkpoints.buckets import remove_uncommitted
from transformer_jax.checkpoints.disk import DiskFolder
from transformer_jax.checkpoints.format import CheckpointError
from transformer_jax.commands import stored_runs
from transformer_jax.commands.flags import names_addresses, parse
from transformer_jax.commands.registry import load_command
from transformer_jax.config import ConfigError, DataError
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime import open_copies, run_copies, store_lock
from transformer_jax.runtime.file_digests import WHOLE
from transformer_jax.runtime.object_store import SharedFolder, changed_objects, write_object_digests
from transformer_jax.runtime.open_copies import (
    IN_PROGRESS,
    MARKER,
    OBJECTS,
    OPEN,
    LockLost,
    StoreError,
    fetch_arrays,
    lock_problem,
)
from transformer_jax.runtime.run_copies import StoredFolder, copy_to_read, folder_to_train
from transformer_jax.runtime.store_lock import StoreLock

RUN = "memory://bucket/run"
OLD_RUN = Path(__file__).parents[1] / "data" / "old_runs" / "transformer"


class Killed(BaseException):
    """The end of a process."""


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """A function that continues on a machine with an empty disk."""

    def empty_disk(name: str = "elsewhere") -> None:
        monkeypatch.setenv(open_copies.SCRATCH, str(tmp_path / name))
        OPEN.clear()
        copy_to_read.cache_clear()
        run_copies._folder_of_this_process.cache_clear()

    monkeypatch.setattr(run_copies, "PAUSES_AT_END", ())
    empty_disk("here")
    return empty_disk


@pytest.fixture
def store(elsewhere):
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


def save(folder, step: int) -> None:
    for name in ("params/d/a", "trained_params/d/a", "metrics/metrics", MARKER):
        file = folder / "checkpoints" / str(step) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{step} {name}")


def begin(folder) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')


def killed(patch) -> None:
    def end(stored):
        raise Killed

    patch.setattr(StoredFolder, "upload_at_end", end)


def test_after_a_kill_the_run_resumes_from_what_was_uploaded_whole(store, elsewhere, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed), folder_to_train(RUN) as folder:
        killed(patch)
        begin(folder)
        save(folder, 1)
        OPEN[folder].upload()
        save(folder, 2)
        patch.setattr(store, "put", lambda here, there: store.put_file(here[0], there[0]) if len(here) > 1 else 1 / 0)
        with pytest.raises(StoreError, match=f"{RUN}: division by zero"):
            OPEN[folder].upload()
    assert store.exists("/bucket/run/checkpoints/2/metrics/metrics")
    elsewhere()
    with folder_to_train(RUN) as folder:
        assert (folder / "metrics.jsonl").read_text() == '{"step": 1}\n'
        assert RunDirectory(folder).checkpoint_steps() == [1]
        arrays = folder / "checkpoints" / "1" / "params" / "d" / "a"
        assert arrays.read_bytes() == bytes(len("1 params/d/a"))
        trained = folder / "checkpoints" / "1" / "trained_params" / "d" / "a"
        assert trained.read_bytes() == bytes(len("1 trained_params/d/a"))
        fetch_arrays(folder / "checkpoints" / "1", ["params"])
        assert arrays.read_text() == "1 params/d/a"
        save(folder, 3)
        store.touch(f"/bucket/run/checkpoints/4/{IN_PROGRESS}")
        store.touch(f"/bucket/run/checkpoints/4/{MARKER}")
    elsewhere("third")
    assert RunDirectory(copy_to_read(RUN).path).checkpoint_steps() == [1, 3]
    assert {name.split("/")[4] for name in store.find("/bucket/run/checkpoints")} == {"1", "3", "4"}
    assert not folder.exists()


def test_what_could_not_be_uploaded_is_kept_and_named(store, monkeypatch):
    with pytest.raises(StoreError, match=r"Access Denied; not everything is uploaded: it is in .*/run-"):  # noqa: SIM117
        with folder_to_train(RUN) as folder:
            begin(folder)
            monkeypatch.setattr(store, "put", lambda *files: (_ for _ in ()).throw(PermissionError("Access Denied")))
    assert len(list(folder.parent.glob("run-*/config.json"))) == 1


def test_a_command_gets_a_copy_and_its_results_are_uploaded(store):
    for name in ("config.json", "curves.png", "events.1"):
        store.pipe_file(f"/bucket/run/{name}", b"{}")
    values = parse(load_command("evaluate").flags, [RUN, f"--ensemble=runs/b,{RUN}:5"])

    def run(given) -> int:
        folder = copy_to_read(RUN).path
        assert [file.name for file in folder.iterdir()] == ["config.json"]
        assert given.workdir == str(folder)
        assert given.ensemble == ["runs/b", f"{folder}:5"]
        (folder / "evaluation-test-1.txt").write_text("a")
        raise DataError(f"{folder}/checkpoints: no checkpoint yet")

    assert names_addresses("evaluate", values)
    with pytest.raises(DataError, match=f"^{RUN}/checkpoints: no checkpoint"):
        stored_runs.run_on_copies("evaluate", run, values)
    assert store.cat_file("/bucket/run/evaluation-test-1.txt") == b"a"


@pytest.fixture
def checksums(store, monkeypatch):
    """A store whose listings have checksums under this name."""
    find = store.find

    def listing(key: str) -> None:
        def with_checksums(path, detail=False, **options):
            found = find(path, detail=detail, **options)
            for name in found if detail else ():
                found[name] = found[name] | {key: hashlib.md5(store.cat_file(name)).hexdigest()}
            return found

        monkeypatch.setattr(store, "find", with_checksums)

    return listing


@pytest.mark.parametrize("address", [f"{RUN}/checkpoints/3", "memory://bucket/moved/checkpoints/3"])
@pytest.mark.parametrize("key", ["ETag", "crc32c"])
def test_objects_that_changed_since_a_checkpoint_was_complete_are_found(store, checksums, address, key):
    checksums(key)
    names = ["params/ocdbt.process_1/d/a", "params/ocdbt.process_1/d/b", "params/manifest", "rest/a", MARKER]
    for name in names:
        store.pipe_file(f"/bucket/run/checkpoints/3/{name}", name.encode())
    write_object_digests(f"{RUN}/checkpoints/3")
    store.cp_file(f"/bucket/run/checkpoints/3/{MARKER}", "/bucket/run/checkpoints/30")
    if "moved" in address:
        store.mv("/bucket/run/", "/bucket/moved/", recursive=True)
    there = address.removeprefix("memory:/")
    assert changed_objects(address, ["params", "rest"]) == []
    store.pipe_file(f"{there}/{MARKER}", b"written later")
    store.rm_file(f"{there}/params/ocdbt.process_1/d/b")
    store.pipe_file(f"{there}/params/manifest", b"other size")
    store.pipe_file(f"{there}/params/ocdbt.process_1/d/a", b"x" * len(names[0]))
    assert changed_objects(address, ["rest", "par"]) == []
    # ETags of S3 depend on the upload too.
    is_found = "moved" not in address or key == "crc32c"
    assert changed_objects(address, ["params"]) == sorted([*names[1:3], *names[: int(is_found)]])
    for content in (b'{"objects', b'{"objects": {"params/a": 1}}'):
        store.pipe_file(f"{there}/{OBJECTS}", content)
        assert changed_objects(address, ["params"]) == [OBJECTS]
    store.rm_file(f"{there}/{OBJECTS}")
    assert changed_objects(address, ["params"]) == []


def test_a_damaged_checkpoint_of_a_store_is_not_read_from_a_copy(store, checksums, elsewhere, monkeypatch):
    checksums("crc32c")
    with folder_to_train(RUN) as folder:
        begin(folder)
        for step in (1, 2):
            save(folder, step)
    elsewhere()
    with folder_to_train(RUN) as folder:
        checkpoints = DiskFolder(folder / "checkpoints")
        assert checkpoints.has_digests(2) and not DiskFolder(Path("/elsewhere")).has_digests(2)
        checkpoints.require_undamaged(1, ["params"], WHOLE)
        store.pipe_file("/bucket/run/checkpoints/2/params/d/a", b"2 params/d/b")
        checkpoints.require_undamaged(2, ["trained_params"], WHOLE)
        with pytest.raises(CheckpointError, match="checkpoint 2 is damaged: params/d/a changed since written"):
            checkpoints.require_undamaged(2, ["params/_METADATA"], WHOLE)
        get = store.get
        monkeypatch.setattr(store, "get", lambda there, here: (get(there, here), Path(here[0]).write_text("cut")))
        with pytest.raises(CheckpointError, match="checkpoint 1 is damaged: checkpoints/1/trained_params/d/a changed"):
            checkpoints.require_undamaged(1, ["trained_params"], WHOLE)
        checkpoints.set_aside(2)
        save(folder, 2)
        (folder / "checkpoints" / "2" / MARKER).write_text("again")
    assert not changed_objects(f"{RUN}/checkpoints/2", ["params"])


def test_a_second_trainer_is_refused_and_a_dead_one_replaced(store, monkeypatch, tmp_path):
    """With a clock that only sleeping moves: the background thread never renews a lock."""
    held, now, renewals = "/bucket/run/train.lock", [0.0], iter([b"host, process 1, abc, 2"])

    def sleep(seconds):
        now[0] += seconds
        for renewal in renewals:
            store.pipe_file(held, renewal)

    monkeypatch.setattr(store_lock, "LEASE", 1e6)
    monkeypatch.setattr(store_lock, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    store.pipe_file(held, b"host, process 1, abc")
    problem = pytest.raises(ConfigError, match=rf"another process trains in {RUN} \(host, process 1\)")
    with problem, StoreLock(RUN).held():
        raise AssertionError
    lock = StoreLock(RUN)
    with lock.held():
        assert now[0] > 1e6, "its process was killed"
        lock.require_held()
        store.pipe_file(held, b"another")
        with pytest.raises(LockLost, match=r"another process trains there now \(another\)"):
            StoredFolder(RUN, tmp_path, lock=lock).upload_files()
        assert "trains there now" in lock_problem(tmp_path / "checkpoints") and not lock_problem(Path("/other"))
    assert store.cat_file(held) == b"another"
    other = StoreLock("memory://bucket/other")
    assert other._create()
    assert other._create(), "the answer to the first attempt may have been lost"
    with StoreLock("memory://bucket/third").held():
        pass
    assert not store.exists("/bucket/third/train.lock")


def test_the_owner_of_a_lost_lock_ends_without_an_upload(store, monkeypatch):
    monkeypatch.setattr(store_lock, "LEASE", 0.3)
    monkeypatch.setattr(run_copies, "PAUSES_AT_END", (60,))
    # Shells ignore it in what they start in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(StoreError, match=r"trains there now \(host, process 1\); not everything is uploaded") as raised:  # noqa: SIM117
        with folder_to_train(RUN) as folder:
            begin(folder)
            # The log is on a full disk.
            monkeypatch.setattr(sys, "stderr", Mock(write=Mock(side_effect=OSError)))
            while True:  # A renewal may overwrite the first.
                store.pipe_file("/bucket/run/train.lock", b"host, process 1, abc, 2")
                threading.Event().wait(0.1)
    signal.signal(signal.SIGINT, before)
    assert isinstance(raised.value.__context__, KeyboardInterrupt) and not store.exists("/bucket/run/config.json")


def test_cut_saves_are_removed_and_checkpoints_of_other_writers_kept(tmp_path):
    names = f"1/params/a 2/{MARKER} 3/{MARKER} 3/{IN_PROGRESS} 4/commit_success.txt note/a 5/{MARKER}"
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"commit_timestamp_nsecs": 7}' if name[0] == "2" else "{}")
    remove_uncommitted(epath.Path(tmp_path))
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["2", "note"]
    assert (tmp_path / "2" / "commit_success.txt").exists()


def test_a_scratch_folder_is_private_and_belongs_to_nobody_else(monkeypatch, tmp_path):
    monkeypatch.setenv(open_copies.SCRATCH, str(tmp_path / "scratch"))
    assert open_copies.scratch_folder().stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr(Path, "lstat", lambda path: Mock(st_uid=1001))
    with pytest.raises(ConfigError, match="TRANSFORMER_JAX_SCRATCH: .*/scratch belongs to another user"):
        open_copies.scratch_folder()


def test_what_cannot_be_used_is_refused(store):
    store.pipe_file("/bucket/bad/a/../../b", b"")
    with pytest.raises(DataError, match="not a valid file name"):
        copy_to_read("memory://bucket/bad")
    with pytest.raises(DataError, match=r"not a run: no config.json .* \(found nothing\)"):
        copy_to_read("memory://bucket/empty")
    with pytest.raises(ConfigError, match="not the address of an object store"):
        copy_to_read("s3:///run")
    values = parse(load_command("train").flags, ["--config=a", f"--workdir={RUN}", "--distributed"])
    with pytest.raises(ConfigError, match="--distributed: memory://bucket/run: Orbax reads"):
        stored_runs.run_on_copies("train", lambda given: 0, values)


@pytest.mark.slow
def test_a_run_at_s3_that_was_killed_equals_one_that_was_not(cache, elsewhere, bucket, monkeypatch, tmp_path):
    config = tiny_config(cache)
    train(config, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(Killed), folder_to_train(bucket) as folder:
        killed(patch)
        shutil.copytree(copy_until(9, tmp_path / "whole", tmp_path / "copy"), folder, dirs_exist_ok=True)
        OPEN[folder].upload()
    elsewhere()
    with folder_to_train(bucket) as folder:
        assert RunDirectory(folder).checkpoint_steps()[-1] == 9
        assert train(config, folder).step == UPDATES
        assert_same_run(tmp_path / "whole", folder, config)
    elsewhere("third")
    assert load(bucket).translate(["a b"]) == load(tmp_path / "whole").translate(["a b"])


def test_a_store_that_refuses_is_not_taken_for_an_empty_one(store, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError("Forbidden")

    folder = SharedFolder(RUN, "data.store")
    assert folder.read("manifest.json") is None and folder.names("shards") == []
    for name in ("info", "ls", "cat_file"):
        monkeypatch.setattr(type(store), name, refuse)
    for read in (folder.read, folder.names):
        with pytest.raises(StoreError, match=f"{RUN}: Forbidden"):
            read("manifest.json")
