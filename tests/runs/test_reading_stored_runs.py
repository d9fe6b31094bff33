"""Runs in an object store that are read: what is downloaded, what is sent back, what is not asked for."""

import errno
import fcntl
import json
import shutil
from pathlib import Path

import pytest
from faulty_store import Killed
from stored_runs import RUN, save, steps, training

from transformer_jax.checkpoints.read_mirror import (
    ReadMirror,
    fetch_arrays,
    open_read_mirror,
    open_run,
    refresh_mirrors,
)
from transformer_jax.config import DataError, ExperimentConfig, from_dict, resolve, to_dict, to_json
from transformer_jax.config.addresses import is_unasked
from transformer_jax.runtime import mirrored_files
from transformer_jax.runtime.file_digests import changed_files
from transformer_jax.runtime.object_stores import MIRRORS, Store, StoredObject


def test_to_read_a_run_arrays_are_downloaded_once_asked_for(store):
    with training() as folder:
        save(folder, 1)
        save(folder, 2)
    with training() as folder:
        Store(RUN).write("checkpoints/3/params/params", b"half")
        begun = len(store.operations)
        mirror = open_read_mirror(RUN)
        assert not any("/params/" in operation for operation in store.operations[begun:])
        checkpoint = mirror.path / "checkpoints" / "2"
        assert steps(mirror.path) == [1, 2]
        assert changed_files(checkpoint, ["metrics"]) == []
        assert (checkpoint / "params" / "params").stat().st_size == (
            folder / "checkpoints" / "2" / "params" / "params"
        ).stat().st_size
        assert changed_files(checkpoint, ["params"]) == ["params/params"], "its place is held"
        fetch_arrays(checkpoint, ["params"])
        assert changed_files(checkpoint, ["params"]) == []
        assert changed_files(checkpoint, ["rest"]) == ["rest/rest"]
        fetch_arrays(Path("/elsewhere/checkpoints/2"), ["params"])


def test_what_is_read_follows_the_store_and_what_a_command_wrote_is_sent(store):
    with training() as folder:
        save(folder, 1)
        save(folder, 2, "old")
    mirror = open_read_mirror(RUN)
    fetch_arrays(mirror.path / "checkpoints" / "2", ["params"])
    (mirror.path / "evaluation-test-2.json").write_text("{}")
    with training() as folder:
        shutil.rmtree(folder / "checkpoints" / "1")
        shutil.rmtree(folder / "checkpoints" / "2")
        save(folder, 2, "new")
    refresh_mirrors()
    assert Store(RUN).read("evaluation-test-2.json") == b"{}"
    assert steps(mirror.path) == [2]
    assert changed_files(mirror.path / "checkpoints" / "2", ["params"]) == ["params/params"]
    fetch_arrays(mirror.path / "checkpoints" / "2", ["params"])
    assert "new" in (mirror.path / "checkpoints" / "2" / "params" / "params").read_text()


def test_an_address_that_holds_no_run_is_refused_before_anything_is_downloaded(store):
    Store("faulty://bucket/other").write("movie", b"1")
    with pytest.raises(DataError, match=r"faulty://bucket/other: not a run directory.*found movie"):
        open_read_mirror("faulty://bucket/other")
    assert store.operations == ["write /bucket/other/movie"]


def test_of_two_commands_that_share_a_copy_none_sends_what_the_other_downloaded(store):
    with training() as folder:
        save(folder, 1)
    first = ReadMirror(RUN)
    Store(RUN).write("metrics.jsonl", b"longer\n")
    second = ReadMirror(RUN)
    Store(RUN).write("metrics.jsonl", b"still longer\n")
    (second.path / "evaluation-test-1.json").write_text("{}")
    begun = len(store.operations)
    for _ in range(2):
        first.send_back()
        second.send_back()
    written = [operation for operation in store.operations[begun:] if operation.startswith("write")]
    assert written == ["write /bucket/run/evaluation-test-1.json"]
    assert Store(RUN).read("metrics.jsonl") == b"still longer\n"


def test_of_a_folder_of_runs_no_checkpoint_is_sent_back(store):
    with training() as folder:
        save(folder, 1)
    mirror = ReadMirror("faulty://bucket")
    other = ReadMirror("faulty://bucket")
    shutil.rmtree(mirror.path / "run" / "checkpoints" / "1" / "params")
    other.refresh()
    begun = len(store.operations)
    for each in (mirror, other):
        each.send_back()
    assert len(store.operations) == begun


def test_an_address_that_only_another_run_names_is_not_opened(store, tmp_path):
    settings = to_dict(ExperimentConfig())
    settings["init"]["run"], settings["data"]["directory"] = RUN, "faulty://bucket/text"
    (tmp_path / "config.json").write_text(json.dumps(to_json(from_dict(settings))))
    config = resolve(str(tmp_path))
    with pytest.raises(DataError, match=f"--init_from={RUN}"):
        open_run(config.init.run)
    assert is_unasked(config.data.directory)
    assert not store.operations
    chosen = resolve(str(tmp_path), [("init.run", RUN), ("data.directory", "faulty://bucket/text")])
    assert (chosen.init.run, chosen.data.directory) == (RUN, "faulty://bucket/text")


def test_a_file_that_a_kill_left_without_record_is_not_sent_back(store, monkeypatch):
    with training() as folder:
        save(folder, 1)
        (folder / "outcome.json").write_text("{}")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        download = Store.download

        def download_and_die(self, name, file, size):
            download(self, name, file, size)
            if name == "outcome.json":
                raise Killed

        patched.setattr(mirrored_files, "for_each", lambda work, names: [work(name) for name in sorted(names)])
        patched.setattr(Store, "download", download_and_die)
        patched.setattr(mirrored_files.MirroredFiles, "_save", saved_once(mirrored_files.MirroredFiles._save))
        ReadMirror(RUN)
    Store(RUN).remove("outcome.json")
    ReadMirror(RUN).send_back()
    assert "outcome.json" not in Store(RUN).listing()


def saved_once(save):
    """As if the process were killed after the first call."""
    calls = []
    return lambda self: calls.append(save(self)) if not calls else None


def test_what_was_only_touched_is_not_sent_back(store):
    with training() as folder:
        save(folder, 1)
        (folder / "evaluation-test-1.json").write_text("first")
    mirror = ReadMirror(RUN)
    for name in ("metrics.jsonl", "evaluation-test-1.json"):
        (mirror.path / name).touch()
        Store(RUN).write(name, b"longer\n")
    mirror.send_back()
    assert Store(RUN).read("metrics.jsonl") == b"longer\n"
    assert Store(RUN).read("evaluation-test-1.json") == b"longer\n"


def test_results_that_were_not_uploaded_yet_are_not_overwritten(store):
    with training() as folder:
        save(folder, 1)
        (folder / "evaluation-test-1.json").write_text("first")
    mirror = ReadMirror(RUN)
    (mirror.path / "evaluation-test-1.json").write_text("of this machine")
    Store(RUN).write("evaluation-test-1.json", b"of another")
    again = ReadMirror(RUN)
    assert (again.path / "evaluation-test-1.json").read_text() == "of this machine"
    Store(RUN).remove("evaluation-test-1.json")
    again.refresh()
    assert (again.path / "evaluation-test-1.json").is_file()
    again.send_back()
    assert Store(RUN).read("evaluation-test-1.json") == b"of this machine"


def test_what_the_store_no_longer_has_is_removed_here(store):
    with training() as folder:
        save(folder, 1)
        (folder / "outcome.json").write_text("{}")
    mirror = ReadMirror(RUN)
    Store(RUN).remove("outcome.json")
    mirror.refresh()
    assert not (mirror.path / "outcome.json").exists()


def test_the_store_is_listed_and_changed_by_one_command_at_a_time(store, monkeypatch):
    with training() as folder:
        save(folder, 1)
    mirror, inside = ReadMirror(RUN), []

    def is_locked() -> bool:
        with (mirror.path.parent / "files.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    for name in ("listing", "download", "write"):
        found = getattr(Store, name)
        monkeypatch.setattr(
            Store,
            name,
            lambda self, *given, found=found, name=name: (inside.append((name, is_locked())), found(self, *given))[1],
        )
    (mirror.path / "evaluation-test-1.json").write_text("{}")
    mirror.refresh()
    mirror.fetch(mirror.path / "checkpoints" / "1", ["params"])
    mirror.send_back()
    assert {name for name, _ in inside} == {"listing", "download", "write"}
    assert all(locked for _, locked in inside)


def test_where_nothing_can_be_locked_another_folder_is_asked_for(store, monkeypatch):
    def refuse(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    with training() as folder:
        save(folder, 1)
    monkeypatch.setattr(mirrored_files.fcntl, "flock", refuse)
    with pytest.raises(DataError, match=f"cannot be locked .No locks available.; {MIRRORS} names another folder"):
        ReadMirror(RUN)


def test_of_a_bucket_only_its_runs_are_downloaded(store):
    with training() as folder:
        save(folder, 1)
    for name in ("corpus/train.en", "deep/er/config.json", "leaderboard.csv"):
        Store("faulty://bucket").write(name, b"1")
    mirror = ReadMirror("faulty://bucket")
    here = {file.relative_to(mirror.path).as_posix() for file in mirror.path.rglob("*") if file.is_file()}
    assert {name for name in here if not name.startswith("run/")} == {"leaderboard.csv"}
    assert "run/config.json" in here


def test_a_placeholder_never_replaces_what_was_downloaded(store, monkeypatch):
    with training() as folder:
        save(folder, 1)
    with monkeypatch.context() as patched:
        patched.setattr(StoredObject, "described", classmethod(lambda cls, info: cls(0, "")))
        mirror = ReadMirror(RUN)
        checkpoint = mirror.path / "checkpoints" / "1"
        mirror.fetch(checkpoint, ["params"])
        ReadMirror(RUN)
        assert changed_files(checkpoint, ["params"]) == []


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "checkpoints/1/metrics/metrics"])
def test_a_copy_that_was_damaged_is_downloaded_again_and_never_sent(store, name):
    with training() as folder:
        save(folder, 1)
    mirror = ReadMirror(RUN)
    (mirror.path / name).write_text("")
    mirror.send_back()
    assert Store(RUN).read(name) != b""
    assert (ReadMirror(RUN).path / name).read_bytes() == Store(RUN).read(name)


@pytest.mark.parametrize("record", ["", None])
def test_without_its_record_no_copy_is_believed_and_results_are_kept(store, record, capsys):
    with training() as folder:
        save(folder, 1)
    mirror = ReadMirror(RUN)
    (mirror.path / "evaluation-test-1.json").write_text("{}")
    with training() as folder:
        save(folder, 2)
    copies = mirror.path.with_name("copies.json")
    copies.unlink() if record is None else copies.write_text(record)
    again = ReadMirror(RUN)
    again.send_back()
    assert b'"step": 2' in Store(RUN).read("metrics.jsonl")
    assert not Store(RUN).read("evaluation-test-1.json")
    (kept,) = mirror.path.parent.glob("unrecorded-*")
    assert (kept / "evaluation-test-1.json").is_file()
    assert f"the record of the local copies is lost; results among them are in {kept}" in capsys.readouterr().err


def test_the_log_of_a_command_that_watches_is_its_own(store):
    with training() as folder:
        save(folder, 1)
    mirror = ReadMirror(RUN)
    (mirror.path / "evaluate-test").mkdir()
    for line in ("1\n", "2\n"):
        with (mirror.path / "evaluate-test" / "metrics.jsonl").open("a") as log:
            log.write(line)
        mirror.send_back()
        mirror.refresh()
    assert Store(RUN).read("evaluate-test/metrics.jsonl") == b"1\n2\n"
