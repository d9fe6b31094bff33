"""Runs in an object store that fails: what is believed, what resumes, who may train."""

import errno
import shutil
import threading

import pytest
from faulty_store import Killed
from stored_runs import AT_END, LEASE_SECONDS, RUN, elsewhere, save, steps, training

from transformer_jax.checkpoints.run_directory import RunIsBusy
from transformer_jax.config import ConfigError
from transformer_jax.runs import training_mirror as module
from transformer_jax.runs import uploads
from transformer_jax.runs.training_mirror import UploadFailed, training_mirror
from transformer_jax.runtime.file_digests import changed_files
from transformer_jax.runtime.object_stores import MIRRORS, Store

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
    sent = uploads.Uploads(Store(RUN), folder, tmp_path / "outgoing", b"{}", lambda: None)
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


def test_a_run_of_an_earlier_version_is_not_begun_anew(store):
    Store(RUN).write("checkpoints/5/params/a", b"1")
    with pytest.raises(ConfigError, match="checkpoints/5 has no digests"), training():
        pass


def test_a_mirror_that_is_behind_gives_way_to_the_store(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    here = tmp_path / "mirrors"
    elsewhere(monkeypatch, tmp_path / "other")
    with training() as folder:
        save(folder, 2)
    monkeypatch.setenv(MIRRORS, str(here))
    with training() as folder:
        assert steps(folder) == [1, 2]


def killed_before_an_upload(monkeypatch, step: int):
    """A start that trained up to ``step``, and was killed before it uploaded anything."""
    with monkeypatch.context() as patched:
        patched.setattr(uploads.Uploads, "send", lambda self, is_last=False: False)
        with pytest.raises(Killed), training() as folder:
            save(folder, step)
            raise Killed


def test_work_that_was_not_uploaded_is_kept_where_another_machine_went_on(store, monkeypatch, tmp_path, capsys):
    with training() as folder:
        save(folder, 1)
    killed_before_an_upload(monkeypatch, 3)
    elsewhere(monkeypatch, tmp_path / "other")
    with training() as folder:
        save(folder, 2)
    elsewhere(monkeypatch, tmp_path / "mirrors")
    with training() as folder:
        assert steps(folder) == [1, 2]
    (kept,) = folder.parent.glob("run-*")
    assert steps(kept) == [1, 3]
    assert f"checkpoints up to 3 that were not uploaded from here are in {kept}" in capsys.readouterr().err


def test_a_start_that_uploads_nothing_takes_nothing_from_the_one_before(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    killed_before_an_upload(monkeypatch, 2)
    elsewhere(monkeypatch, tmp_path / "other")
    with monkeypatch.context() as patched:
        patched.setattr(uploads.Uploads, "send", lambda self, is_last=False: False)
        with training():
            pass
    elsewhere(monkeypatch, tmp_path / "mirrors")
    with training() as folder:
        assert steps(folder) == [1, 2]


def test_a_copy_of_the_disk_on_another_machine_gives_way_to_what_was_uploaded_since(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    shutil.copytree(tmp_path / "mirrors", tmp_path / "clone")
    with training() as folder:
        save(folder, 2)
    elsewhere(monkeypatch, tmp_path / "clone")
    with training() as folder:
        assert steps(folder) == [1, 2]
    assert "checkpoints/2/digests.json" in Store(RUN).listing()


def test_a_copy_of_the_disk_that_was_made_while_it_trained_gives_way_too(store, monkeypatch, tmp_path):
    with training(pause=0.01) as folder:
        save(folder, 1)
        while "checkpoints/1/digests.json" not in Store(RUN).listing():
            threading.Event().wait(0.01)
        shutil.copytree(tmp_path / "mirrors", tmp_path / "clone")
        save(folder, 2)
    elsewhere(monkeypatch, tmp_path / "clone")
    with training() as folder:
        assert steps(folder) == [1, 2]
    assert "checkpoints/2/digests.json" in Store(RUN).listing()


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
