"""Runs in an object store that fails: what is believed, what resumes, who may train."""

import errno
import shutil
import threading

import pytest
from faulty_store import Killed
from stored_runs import AT_END, LEASE_SECONDS, RUN, elsewhere, save, steps, training

from transformer_jax.config import ConfigError
from transformer_jax.runs import training_mirror as module
from transformer_jax.runs import uploads
from transformer_jax.runs.run_directory import RunIsBusy
from transformer_jax.runs.training_mirror import UploadFailed, training_mirror
from transformer_jax.runtime.file_digests import changed_files
from transformer_jax.runtime.object_stores import Store

BUSY = OSError(errno.EBUSY, "503 Slow Down")


def test_what_trains_here_is_found_elsewhere_and_what_was_deleted_is_not(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
        save(folder, 2)
        (folder / "outcome.json").write_text("{}")
    elsewhere(monkeypatch, tmp_path / "other")
    with training() as folder:
        assert steps(folder) == [1, 2]
        assert not any(changed_files(checkpoint) for checkpoint in (folder / "checkpoints").iterdir())
        save(folder, 3)
        shutil.rmtree(folder / "checkpoints" / "1")
        (folder / "outcome.json").unlink()
    names = Store(RUN).listing()
    assert {name.split("/")[1] for name in names if name.startswith("checkpoints/")} == {"2", "3"}
    assert {name for name in names if "/" not in name} == {"config.json", "metrics.jsonl", "writer.json"}


# Of two logs and two checkpoints of three files and digests each.
@pytest.mark.parametrize("at", [2, 4, 6, 9])
def test_no_checkpoint_is_believed_that_a_kill_left_half_uploaded(store, monkeypatch, tmp_path, at):
    with training() as folder:
        save(folder, 1)
    with pytest.raises(Killed), training() as folder:
        save(folder, 2)
        save(folder, 3)
        begun = len(store.operations)
        store.faults.update(dict.fromkeys(range(begun + at, begun + 500), Killed()))
    store.faults.clear()
    log = Store(RUN).read("metrics.jsonl").decode()
    elsewhere(monkeypatch, tmp_path / "other")
    with training() as folder:
        found = steps(folder)
        assert found[0] == 1
        assert all(changed_files(folder / "checkpoints" / str(step)) == [] for step in found)
        assert f'"step": {found[-1]}' in log, "a log is never behind its checkpoint"
        save(folder, 4)
    believed = {name.split("/")[1] for name in Store(RUN).listing() if name.startswith("checkpoints/")}
    assert believed == {*map(str, found), "4"}, "halves are removed"


def test_a_checkpoint_written_again_with_its_score_replaces_the_one_without(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
        save(folder, 2, "without")
    with training() as folder:
        shutil.rmtree(folder / "checkpoints" / "2")
        save(folder, 2, "with")
        begun = len(store.operations)
    first = next(operation for operation in store.operations[begun:] if "checkpoints/2" in operation)
    assert first == "remove /bucket/run/checkpoints/2/digests.json", "old digests would be those of new files"
    elsewhere(monkeypatch, tmp_path / "other")
    with training() as folder:
        assert "with" in (folder / "checkpoints" / "2" / "params" / "params").read_text()
        assert changed_files(folder / "checkpoints" / "2") == []


def test_a_store_that_is_away_for_a_while_ends_nothing(store, capsys):
    moment = threading.Event()
    with training(pause=0.01) as folder:
        save(folder, 1)
        uploads = Store(RUN)
        while not uploads.read("checkpoints/1/digests.json"):
            moment.wait(0.01)
        begun = len(store.operations)
        store.faults.update({begun + at: PermissionError(errno.EACCES, "Access Denied") for at in range(1, 9)})
        save(folder, 2)
        while not uploads._files.exists("/bucket/run/checkpoints/2/digests.json"):
            moment.wait(0.01)
        moment.wait(0.1)
    told = capsys.readouterr().err
    assert "Access Denied; the run goes on" in told
    assert "answers again" in told


def test_a_long_log_is_sent_rarely_but_before_a_checkpoint_and_at_the_end(store, monkeypatch, tmp_path):
    monkeypatch.setattr(uploads, "BYTES_PER_SECOND", 1e-3)
    folder = tmp_path / "run"
    folder.mkdir()
    save(folder, 1)
    sent = uploads.Uploads(Store(RUN), tmp_path, b"{}", lambda: None)
    sent.send()
    save(folder, 2)

    def grown(**how: bool) -> list[str]:
        with (folder / "metrics.jsonl").open("a") as log:
            log.write("{}\n")
        begun = len(store.operations)
        sent.send(**how)
        return [operation.rpartition("/")[2] for operation in store.operations[begun:]]

    assert "metrics.jsonl" in grown()
    assert grown() == []
    save(folder, 3)
    assert grown()[0] == "metrics.jsonl"
    assert grown() == []
    assert grown(is_last=True) == ["metrics.jsonl"]


def test_what_could_not_be_uploaded_is_said_and_uploaded_by_the_next_start(store, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_AT_END", 0.02)
    with (
        pytest.raises(UploadFailed, match=r"503 Slow Down.*the same command on this machine") as found,
        training() as folder,
    ):
        save(folder, 1)
        store.faults.update(dict.fromkeys(range(len(store.operations) + 1, 100_000), BUSY))
    assert str(folder) in str(found.value)
    store.faults.clear()
    assert not any(name.startswith("checkpoints/") for name in Store(RUN).listing())
    with training() as folder:
        assert steps(folder) == [1]
    assert "checkpoints/1/digests.json" in Store(RUN).listing()


def test_a_folder_that_was_removed_says_nothing_about_the_store(store):
    with training() as folder:
        save(folder, 1)
    with training() as folder:
        shutil.rmtree(folder / "checkpoints")
    assert "checkpoints/1/digests.json" in Store(RUN).listing()
    with training() as folder:
        shutil.rmtree(folder)
    assert "checkpoints/1/digests.json" in Store(RUN).listing()


def test_one_trains_and_a_second_is_refused_here_and_elsewhere(store, monkeypatch, tmp_path):
    with training_mirror(RUN, AT_END, 3.0):
        with pytest.raises(RunIsBusy, match=f"another process is training in {RUN}"), training():
            pass
        elsewhere(monkeypatch, tmp_path / "other")
        with pytest.raises(RunIsBusy, match=f"another process is training in {RUN}"), training_mirror(RUN, AT_END, 3.0):
            pass


def test_one_that_was_killed_is_taken_over_and_uploads_nothing_afterwards(store, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "end_this_process", lambda problem: None)
    with pytest.raises(UploadFailed, match="another process took the lease"), training() as folder:
        save(folder, 1)
        Store(RUN).write("train.lease", b'["0123", 7]')
        elsewhere(monkeypatch, tmp_path / "other")
        with training() as other:
            save(other, 2)
    names = Store(RUN).listing()
    assert "checkpoints/2/digests.json" in names
    assert not any(name.startswith("checkpoints/1/") for name in names)


def test_where_nothing_can_be_locked_that_is_what_is_said(store):
    store.is_lease_refused = True
    with pytest.raises(ConfigError, match="cannot lock here: .*Access Denied"), training():
        pass


def test_once_the_lease_is_lost_no_file_of_a_checkpoint_follows(store, monkeypatch):
    monkeypatch.setattr(module, "end_this_process", lambda problem: None)
    with pytest.raises(UploadFailed, match="another process took the lease"), training() as folder:
        save(folder, 1)
        monkeypatch.setattr(uploads, "for_each", lambda work, names: [work(name) for name in names])
        upload, sent = Store.upload, []

        def lose(self, file, name):
            upload(self, file, name)
            sent.append(name)
            self.write("train.lease", b'["0123", 7]')

        monkeypatch.setattr(Store, "upload", lose)
    assert len(sent) == 1


def test_a_lease_that_is_lost_while_the_last_files_are_uploaded_ends_nothing_but_the_upload(store, monkeypatch):
    ended = []
    monkeypatch.setattr(module, "end_this_process", ended.append)
    with pytest.raises(UploadFailed, match="another process took the lease"), training() as folder:
        save(folder, 1)
        moment, upload = threading.Event(), Store.upload

        def lose(self, file, name):
            self.write("train.lease", b'["0123", 7]')
            moment.wait(2 * LEASE_SECONDS)
            upload(self, file, name)

        monkeypatch.setattr(Store, "upload", lose)
    assert not ended


def test_what_others_wrote_since_is_not_sent_over(store):
    with training() as folder:
        save(folder, 1)
        (folder / "evaluation-test-1.json").write_text("first")
    Store(RUN).write("evaluation-test-1.json", b"second")
    with training() as folder:
        (folder / "evaluation-validation-1.json").write_text("{}")
    assert Store(RUN).read("evaluation-test-1.json") == b"second"
    assert Store(RUN).read("evaluation-validation-1.json") == b"{}"


def test_a_checkpoint_that_cannot_be_copied_is_not_passed_over(store, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UploadFailed, match="checkpoints/1 cannot be uploaded: .*No space left"), training() as folder:
        save(folder, 1)
        monkeypatch.setattr(uploads.os, "link", refuse)
        monkeypatch.setattr(uploads.shutil, "copyfile", refuse)


@pytest.mark.parametrize("name", ["checkpoints/1/digests.json", "a:b.txt"])
def test_what_cannot_be_uploaded_is_said_at_the_end(store, name):
    with (
        pytest.raises(UploadFailed, match="checkpoints/1 cannot be uploaded|not uploaded.*a:b.txt"),
        training() as folder,
    ):
        save(folder, 1)
        if name == "a:b.txt":
            (folder / name).write_text("")
        else:
            (folder / name).unlink()


def test_a_copy_of_the_mirror_on_this_machine_has_no_part_in_the_lease(store, monkeypatch, tmp_path):
    with training_mirror(RUN, AT_END, 3.0):
        shutil.copytree(tmp_path / "mirrors", tmp_path / "copy")
        elsewhere(monkeypatch, tmp_path / "copy")
        with pytest.raises(RunIsBusy), training_mirror(RUN, AT_END, 3.0):
            pass


def test_every_write_and_every_removal_asks_for_the_lease_first(store, tmp_path):
    asked, operations = [], store.operations
    base = tmp_path / "base"
    (base / "run").mkdir(parents=True)
    sent = uploads.Uploads(Store(RUN), base, b"{}", lambda: asked.append(len(operations)))
    for step in (1, 2):
        save(base / "run", step)
        (base / "run" / "outcome.json").write_text("{}")
        sent.send()
        shutil.rmtree(base / "run" / "checkpoints" / str(step))
        (base / "run" / "outcome.json").unlink()
    sent.send()
    changing = [place for place, operation in enumerate(operations) if not operation.startswith("read")]
    assert {operation.partition(" ")[0] for operation in operations} >= {"write", "remove"}
    assert len(asked) == len(changing)


def test_the_newest_checkpoint_goes_first(store, tmp_path):
    (tmp_path / "run").mkdir()
    for step in (2, 10, 9):
        save(tmp_path / "run", step)
    uploads.Uploads(Store(RUN), tmp_path, b"{}", lambda: None).send()
    marked = [operation for operation in store.operations if operation.endswith("digests.json")]
    assert [operation.split("/")[-2] for operation in marked] == ["10", "9", "2"]


def test_what_a_checkpoint_of_that_number_had_before_is_removed(store):
    with training() as folder:
        save(folder, 1)
    Store(RUN).write("checkpoints/1/params/stale", b"1")
    with training() as folder:
        shutil.rmtree(folder / "checkpoints" / "1")
        save(folder, 1, "again")
    assert "checkpoints/1/params/stale" not in Store(RUN).listing()


def test_what_was_sent_and_is_gone_from_the_store_is_sent_again(store):
    with training() as folder:
        save(folder, 1)
    Store(RUN).remove("config.json")
    with training():
        pass
    assert Store(RUN).read("config.json")
