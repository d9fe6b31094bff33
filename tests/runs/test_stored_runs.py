"""Runs in an object store that fails: what is believed, what resumes, who may train."""

import errno
import json
import shutil
import threading
from pathlib import Path

import pytest
from faulty_store import Killed, faulty_store

from transformer_jax.checkpoints.read_mirror import fetch_arrays, open_read_mirror, refresh_mirrors
from transformer_jax.checkpoints.run_directory import RunIsBusy
from transformer_jax.commands.flag_parsing import parse_flags
from transformer_jax.commands.mirrored_runs import run_on_mirrors
from transformer_jax.commands.registry import load_command
from transformer_jax.config import ConfigError, DataError
from transformer_jax.runs import training_mirror as module
from transformer_jax.runs import uploads
from transformer_jax.runs.training_mirror import UploadFailed, training_mirror
from transformer_jax.runtime.file_digests import changed_files, write_digests
from transformer_jax.runtime.object_stores import MIRRORS, Store

RUN = "faulty://bucket/run"
BUSY = OSError(errno.EBUSY, "503 Slow Down")
# No upload but that at the end; a lease that is not renewed meanwhile.
AT_END, LEASE_SECONDS = 3600.0, 0.3


@pytest.fixture
def store(monkeypatch, tmp_path):
    with faulty_store(monkeypatch, tmp_path / "mirrors") as found:
        yield found


def training(pause: float = AT_END):
    return training_mirror(RUN, pause, LEASE_SECONDS)


def elsewhere(monkeypatch, folder: Path) -> None:
    """From now on this is a machine with an empty disk."""
    monkeypatch.setenv(MIRRORS, str(folder))


def save(folder: Path, step: int, text: str = "") -> None:
    """A checkpoint as the manager leaves it, and a log that goes up to it."""
    checkpoint = folder / "checkpoints" / f"{step}.tmp"
    for item in ("params", "rest", "metrics"):
        (checkpoint / item).mkdir(parents=True)
        (checkpoint / item / item).write_text(json.dumps({"item": item, "text": text or str(step)}))
    (checkpoint / "metrics" / "metrics").write_text(json.dumps({"bleu": step}))
    write_digests(checkpoint)
    with (folder / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"step": step}) + "\n")
    (folder / "config.json").write_text("{}")
    checkpoint.rename(checkpoint.with_name(str(step)))


def steps(folder: Path) -> list[int]:
    return sorted(int(entry.name) for entry in (folder / "checkpoints").glob("*"))


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
    sent = uploads.Uploads(Store(RUN), folder, tmp_path / "outgoing", lambda: None)

    def grown(**how: bool) -> list[str]:
        with (folder / "metrics.jsonl").open("a") as log:
            log.write("{}\n")
        begun = len(store.operations)
        sent.send(**how)
        return [operation.rpartition("/")[2] for operation in store.operations[begun:]]

    assert "metrics.jsonl" in grown()
    assert grown() == []
    save(folder, 2)
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
    monkeypatch.setattr("transformer_jax.runtime.lease._end_this_process", lambda problem: None)
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


def test_commands_see_folders_and_their_messages_name_the_address(store):
    with training() as folder:
        save(folder, 1)
    values = parse_flags(load_command("checkpoint").define_flags, ["diff", f"{RUN}/:1", f"{RUN}:best"])
    seen = []

    def run(given):
        seen.extend(given.arguments)
        raise ConfigError(f"{given.arguments[1]}: wrong")

    with pytest.raises(ConfigError, match=f"^{RUN}:1: wrong"):
        run_on_mirrors("checkpoint", run, values)
    assert seen == ["diff", f"{open_read_mirror(RUN).path}:1", f"{open_read_mirror(RUN).path}:best"]
    values = parse_flags(load_command("compare").define_flags, [f"{RUN}/evaluation-test-1.txt", "runs/b"])
    run_on_mirrors("compare", lambda given: seen.extend(given.arguments) or 0, values)
    assert seen[-2:] == [str(open_read_mirror(RUN).path / "evaluation-test-1.txt"), "runs/b"]
