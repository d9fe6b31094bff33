"""Runs in an object store: in memory, and where moto and s3fs are installed at a server that speaks
S3."""

import errno
import hashlib
import json
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from memory_store import MemoryS3, use_memory
from run_settings import UPDATES, tiny_config
from run_steps import assert_same_run, copy_until, train

from transformer_jax.__main__ import main
from transformer_jax.api.loaded_run import load
from transformer_jax.checkpoints.bucket_checkpoints import CommittedFolder, remove_uncommitted
from transformer_jax.checkpoints.disk import DiskFolder
from transformer_jax.checkpoints.save_failure import SaveFailed
from transformer_jax.commands.run_flags import split_checkpoint
from transformer_jax.config import ConfigError, load_run_config, to_json
from transformer_jax.errors import StoreError
from transformer_jax.files import store_path
from transformer_jax.files.object_digests import (
    OBJECTS,
    changed_objects,
    compared_objects,
    has_checksums,
    write_object_digests,
)
from transformer_jax.files.paths import as_path, in_store
from transformer_jax.run_directory.layout import RunDirectory, RunIsBusy
from transformer_jax.run_directory.selection import chosen_step
from transformer_jax.run_directory.stored_checkpoints import COMMIT, IN_PROGRESS, MARKER, stored_checkpoints
from transformer_jax.runs import metrics_log
from transformer_jax.runs.metrics_log import MetricsLog, read_metrics
from transformer_jax.runtime import store_lock
from transformer_jax.runtime.store_lock import LockLost, StoreLock

RUN = "s3://bucket/run"


class Killed(BaseException):
    """The end of a process."""


@pytest.fixture
def store(monkeypatch) -> MemoryS3:
    return use_memory(monkeypatch)


def refuse(*arguments, **options):
    raise PermissionError("Forbidden")


def test_a_path_in_a_store_has_the_methods_of_one_on_a_disk(store, tmp_path):
    for root in (tmp_path, as_path(RUN)):
        assert not root.with_name("other").exists()
        for name in ("a.txt", "folder/b.txt", "folder/c.json"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(name.encode())
        assert (root / "a.txt").read_text() == "a.txt" and (root / "folder" / "b.txt").read_bytes() == b"folder/b.txt"
        assert sorted(path.name for path in root.iterdir()) == ["a.txt", "folder"]
        assert [path.name for path in (root / "folder").glob("*.json")] == ["c.json"]
        kinds = [
            (each.is_file(), each.is_dir(), each.exists()) for each in (root / "a.txt", root / "folder", root / "x")
        ]
        assert kinds == [(True, False, True), (False, True, True), (False, False, False)]
        (root / "a.txt").unlink()
        (root / "a.txt").unlink(missing_ok=True)
        with pytest.raises(FileNotFoundError) as caught:
            (root / "a.txt").read_bytes()
        assert caught.value.filename in (str(root / "a.txt"), root / "a.txt")
        assert str((root / "folder").with_name("x")).endswith("/x") and (root / "folder").parent == root
    path = as_path(f"{RUN}/")
    assert str(path / "a") == f"{RUN}/a" and as_path(path) == path and in_store(path / "a") and not in_store(tmp_path)
    (path / "lock").create(b"mine")
    with pytest.raises(FileExistsError):
        (path / "lock").create(b"theirs")
    assert (path / "lock").read_bytes() == b"mine"


def test_a_listing_answers_for_every_file_without_further_requests(store):
    path = as_path(RUN)
    for name in ("1/a", "1/b/c", "12/d"):
        (path / name).write_bytes(b"x")
    store.requests.clear()
    with (path / "1").listed() as listed:
        assert (listed / "a").is_file() and (listed / "b").is_dir() and not (listed / "c").exists()
        assert set(listed.objects()) == {"a", "b/c"} and set((listed / "b").objects()) == {"c"}
        assert store.requests == ["LIST"]
        (path / "1" / "e").write_bytes(b"")
        assert (path / "1" / "e").is_file() and not (listed / "e").exists(), "a listing is of the paths made from it"
        assert (listed.parent / "12" / "d").is_file()
    assert (listed / "e").is_file()


def test_a_new_folder_knows_what_was_written_there_without_requests(store):
    folder = (as_path(RUN) / "3").new()
    (folder / "gone").unlink()
    assert not folder.exists() and not (folder / "params").exists() and store.requests == []
    (folder / "params" / "a").write_text("a")
    (as_path(RUN) / "3" / "params" / "b").write_text("b")
    assert folder.is_dir() and (folder / "params").is_dir() and (folder / "params" / "a").is_file()
    assert store.requests == ["PUT", "PUT"]
    assert [path.name for path in (folder / "params").glob("?")] == ["a", "b"], "TensorStore writes by itself"
    (folder / "params" / "a").unlink()
    assert not (as_path(RUN) / "3" / "params" / "a").exists() and not (folder / "params").exists()


def test_a_refusal_is_an_error_with_its_address_and_not_a_missing_file(store, monkeypatch):
    path = as_path(RUN)
    for name in ("info", "ls", "find", "cat_file", "pipe_file"):
        monkeypatch.setattr(MemoryS3, name, refuse)
    reads = [path.exists, path.objects, path.read_bytes]
    reads += [lambda: path.write_text(""), lambda: list(path.iterdir()), lambda: stored_checkpoints(path)]
    reads += [lambda: load_run_config(path), lambda: read_metrics(path), lambda: RunDirectory(path).require_run()]
    for read in reads:
        with pytest.raises(StoreError, match=f"^{RUN}.*: Forbidden") as caught:
            read()
        assert caught.value.address.startswith(RUN) and caught.value.reason == "Forbidden"


@pytest.fixture
def clock(monkeypatch):
    """A clock that only pauses between requests move, with the time in ``[0]``."""
    now = [0.0]
    pauses = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(store_path, "time", pauses)
    for name in ("_GAVE_UP", "_IS_REPORTED", "_HAS_ANSWERED"):
        monkeypatch.setattr(store_path, name, threading.Event())
    return now


@pytest.mark.parametrize("error", [TimeoutError("Could not connect"), OSError(errno.EBUSY, "Slow Down")])
def test_an_address_that_never_answered_is_told_soon(store, clock, error, monkeypatch):
    def silent(self, *arguments, **options):
        raise error

    remedy = r"; check the network, and the address in AWS_ENDPOINT_URL if that is set$"
    with monkeypatch.context() as patch:
        patch.setattr(MemoryS3, "info", silent)
        with pytest.raises(StoreError, match=remedy) as caught:
            as_path(RUN).exists()
        assert caught.value.address == RUN and caught.value.is_outage and clock[0] <= 10
    with pytest.raises(FileNotFoundError):
        as_path(RUN).read_bytes()
    begun = clock[0]
    monkeypatch.setattr(MemoryS3, "info", silent)
    with pytest.raises(StoreError, match=str(error.args[-1])):
        as_path(RUN).exists()
    assert clock[0] - begun > 100, "it has answered before"


@pytest.mark.parametrize("seconds", [5.0, 100.0, 1000.0])
def test_every_request_is_repeated_while_the_store_does_not_answer(store, clock, seconds, monkeypatch, capsys):
    store_path._HAS_ANSWERED.set()
    path, said = as_path(RUN), f"{RUN}/a does not answer ([Errno {errno.EBUSY}] Slow Down); asking again\n"
    requests = {
        "info": path.__class__.exists,
        "cat_file": path.__class__.read_bytes,
        "pipe_file": lambda each: each.create(b"a"),
        "find": path.__class__.objects,
        "rm_file": path.__class__.unlink,
        "cp_file": lambda each: each.copy_to(path / "b"),
    }
    for method, request in requests.items():
        clock[0], usual = 0.0, getattr(MemoryS3, method)
        (path / "a").write_bytes(b"a")
        if method == "pipe_file":
            (path / "a").unlink()
        with monkeypatch.context() as patch:

            def busy(self, *arguments, _usual=usual, **options):
                if clock[0] < seconds:
                    raise OSError(errno.EBUSY, "Slow Down")
                return _usual(self, *arguments, **options)

            patch.setattr(MemoryS3, method, busy)
            if seconds > store_path.SECONDS_OF_OUTAGE:
                with pytest.raises(StoreError, match="Slow Down") as caught:
                    request(path / "a")
                assert caught.value.is_outage and 100 < clock[0] <= store_path.SECONDS_OF_OUTAGE
                before = clock[0]
                with pytest.raises(StoreError):
                    request(path / "a")
                assert clock[0] == before, "a run that ends waits once"
            else:
                request(path / "a")
        assert capsys.readouterr().err == said * (seconds > store_path.SECONDS_OF_SILENCE)


def test_a_store_that_does_not_answer_is_told_from_one_that_refuses():
    def of_s3(status: int) -> Exception:
        error, error.__cause__ = OSError(errno.EIO, "text"), Exception()
        error.__cause__.response = {"ResponseMetadata": {"HTTPStatusCode": status}}
        return error

    assert [store_path.is_outage(of_s3(status)) for status in (500, 503, 429, 401, 403, 404)] == [True] * 3 + [
        False
    ] * 3
    assert store_path.is_outage(ValueError("ABORTED: All 3 retry attempts failed")) and store_path.is_outage(
        TimeoutError()
    )
    for error in (
        PermissionError("Forbidden"),
        FileNotFoundError(),
        ValueError("PERMISSION_DENIED: no"),
        KeyError("a"),
    ):
        assert not store_path.is_outage(error)


@pytest.mark.parametrize("address", ["s3:///run", "s3://", "s3:/bucket/run", "http://bucket/run"])
def test_only_folders_at_s3_and_gs_are_runs(address):
    with pytest.raises(ConfigError, match="not the address of a run; write s3://BUCKET/FOLDER"):
        RunDirectory(address)


def test_without_a_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ConfigError, match="gs://: .*; install the extra object-stores"):
        as_path("gs://bucket/run").exists()


def test_a_folder_without_a_run_is_refused_by_its_address(store, capsys):
    assert main(["translate", RUN]) == 2
    assert f"--workdir: {RUN} does not exist" in capsys.readouterr().err
    (as_path(RUN) / "note.txt").write_text("")
    assert main(["translate", RUN]) == 2
    assert f"--workdir: {RUN} is not a run directory: no config.json in it (found note.txt)" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="holds files that are not of a run"), RunDirectory(RUN).locked():
        raise AssertionError
    assert split_checkpoint(f"{RUN}/:5", "--ensemble") == (f"{RUN}/", "5")


def add(checkpoint, *names: str, content: str = "{}") -> None:
    for name in names:
        (checkpoint / name).write_text(content)


def test_only_complete_checkpoints_are_seen_and_cut_ones_removed(store):
    run = RunDirectory(RUN)
    add(run.checkpoints / "1", "params/a")
    add(run.checkpoints / "2", MARKER, content='{"commit_timestamp_nsecs": 7}')
    add(run.checkpoints / "3", MARKER, IN_PROGRESS)
    add(run.checkpoints / "4", COMMIT)
    add(run.checkpoints / "6", MARKER, COMMIT, "rest/a")
    add(run.checkpoints / "note", "a")
    assert run.checkpoint_steps() == [2, 6]
    assert [checkpoint.can_be_continued for checkpoint in stored_checkpoints(run.checkpoints)] == [False, True]
    remove_uncommitted(run.checkpoints)
    assert sorted(folder.name for folder in run.checkpoints.iterdir()) == ["2", "6", "note"]
    # An earlier version uploaded it from a disk.
    assert (run.checkpoints / "2" / COMMIT).exists()


def test_an_unfinished_checkpoint_that_was_copied_to_a_disk_is_not_complete(tmp_path):
    for name in ("3/params/a", "6/params/a", f"6/{IN_PROGRESS}"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [checkpoint.step for checkpoint in stored_checkpoints(tmp_path)] == [3]
    assert DiskFolder(tmp_path).prepare() == [f"checkpoint 6 is unfinished; moved to {tmp_path.parent / 'damaged-6'}"]


def test_a_score_that_was_replaced_in_a_store_is_damage(store, checksums):
    checksums("ETag")
    run = RunDirectory(RUN)
    for step in (3, 6):
        add(run.checkpoints / str(step), MARKER, "progress/metadata", "metrics/metrics", content='{"bleu": 1.0}')
        write_object_digests(run.checkpoints / str(step))
    add(run.checkpoints / "6", "metrics/metrics", content='{"bleu": 9.0}')
    assert [(checkpoint.score, checkpoint.is_sound) for checkpoint in stored_checkpoints(run.checkpoints)] == [
        (1.0, True),
        (None, False),
    ]


def test_evaluate_asks_whether_the_results_can_be_written_before_it_decodes(store, monkeypatch):
    from transformer_jax.commands.evaluate import _results

    values = SimpleNamespace(output=None, workdir=RUN)
    assert _results(values) == as_path(RUN) and not as_path(RUN).exists()
    monkeypatch.setattr(MemoryS3, "pipe_file", refuse)
    with pytest.raises(ConfigError, match=f"^{RUN}/.*: Forbidden; the scores cannot be written there: give --output"):
        _results(values)


@pytest.fixture
def checksums(store, monkeypatch):
    """A store whose listings have checksums under this name."""
    find = MemoryS3.find

    def listing(key: str) -> None:
        def with_checksums(self, path, **options):
            found = find(self, path)
            digests = {name: hashlib.md5(store.cat_file(name)).hexdigest() for name in found}
            return {name: found[name] | {key: digests[name]} for name in found}

        monkeypatch.setattr(MemoryS3, "find", with_checksums)

    return listing


@pytest.mark.parametrize("address", [f"{RUN}/checkpoints/3", "s3://bucket/moved/checkpoints/3"])
@pytest.mark.parametrize("key", ["ETag", "ETag of encrypted", "crc32c"])
def test_objects_that_changed_since_a_checkpoint_was_complete_are_found(store, checksums, address, key):
    checksums(key.partition(" ")[0])
    has_md5 = key == "ETag"
    names = ["params/ocdbt.process_1/d/a", "params/ocdbt.process_1/d/b", "params/manifest", "rest/a", MARKER]
    written, there = as_path(f"{RUN}/checkpoints/3"), as_path(address)
    for name in names:
        (written / name).write_text(name)
    if has_md5:
        (written / IN_PROGRESS).write_text("")
    write_object_digests(written)
    (written / IN_PROGRESS).unlink()
    (written.parent / "30").write_text("")
    if written != there:
        for name in [*names, OBJECTS]:
            (there / name).write_bytes((written / name).read_bytes())
    # ETags of S3 depend on the upload and on encryption too.
    is_found = written == there or key in ("ETag", "crc32c")
    assert (
        changed_objects(there, ["params", "rest"]) == []
        and has_checksums(compared_objects(there, ["params", "rest"])) == is_found
    )
    (there / MARKER).write_text("written later")
    (there / "params/ocdbt.process_1/d/b").unlink()
    (there / "params/manifest").write_text("other size")
    (there / "params/ocdbt.process_1/d/a").write_text("x" * len(names[0]))
    assert changed_objects(there, ["rest", "par"]) == []
    assert changed_objects(there, ["params"]) == sorted([*names[1:3], *names[: int(is_found)]])
    for content in ('{"objects', '{"objects": {"params/a": 1}}'):
        (there / OBJECTS).write_text(content)
        assert changed_objects(there, ["params"]) == [OBJECTS]
    (there / OBJECTS).unlink()
    assert changed_objects(there, ["params"]) == [] and not has_checksums(compared_objects(there, ["params"]))


def busy(holder: str) -> ConfigError:
    return ConfigError(f"held by {holder}")


def test_a_second_trainer_is_refused_and_a_dead_one_replaced(store, monkeypatch):
    """With a clock that only sleeping moves: the background thread never renews a lock."""
    run, now, renewals = as_path(RUN), [0.0], iter([b"host, process 1, abc, 2"])
    held = run / "train.lock"

    def sleep(seconds):
        now[0] += seconds
        for renewal in renewals:
            held.write_bytes(renewal)

    monkeypatch.setattr(store_lock, "LEASE", 1e6)
    monkeypatch.setattr(store_lock, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    held.write_bytes(b"host, process 1, abc")
    problem = pytest.raises(RunIsBusy, match=rf"another process is training in {RUN}.* \(host, process 1\)")
    with problem, RunDirectory(RUN).locked():
        raise AssertionError
    directory = RunDirectory(RUN)
    with directory.locked():
        assert now[0] > 1e6, "its process was killed"
        directory.require_lock()
        log = MetricsLog(directory.metrics, 0, require_lock=directory.require_lock)
        log.write(1, {"a": 1.0})
        held.write_bytes(b"another")
        for write in (directory.require_lock, directory.publish, log.sync):
            with pytest.raises(LockLost, match=r"another process trains there now \(another\)"):
                write()
        log.close()
    assert held.read_bytes() == b"another" and directory.metrics.read_bytes() == b""
    # A run on a disk was copied, with the file that it locks.
    (as_path("s3://bucket/copy") / "train.lock").write_bytes(b"")
    with StoreLock(as_path("s3://bucket/copy")).held(busy):
        pass
    other = StoreLock(as_path("s3://bucket/other"))
    assert other._create()
    assert other._create(), "the answer to the first attempt may have been lost"
    with StoreLock(as_path("s3://bucket/third")).held(busy):
        pass
    assert not as_path("s3://bucket/third/train.lock").exists()


def test_the_owner_of_a_lost_lock_is_interrupted(store, monkeypatch):
    monkeypatch.setattr(store_lock, "LEASE", 0.3)
    # Shells ignore it in what they start in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), RunDirectory(RUN).locked():
            # The log is on a full disk.
            monkeypatch.setattr(sys, "stderr", Mock(write=Mock(side_effect=OSError)))
            while True:  # A renewal may overwrite the first.
                (as_path(RUN) / "train.lock").write_bytes(b"host, process 1, abc, 2")
                threading.Event().wait(0.1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (as_path(RUN) / "train.lock").read_bytes().startswith(b"host, process 1")


def test_the_log_is_rewritten_at_checkpoints_and_at_intervals(store, monkeypatch):
    path, started, go = as_path(RUN) / "metrics.jsonl", threading.Event(), threading.Event()
    log = MetricsLog(path, 0)
    log.write(1, {"a": 1.0})
    assert read_metrics(path) == []
    log.sync()
    assert read_metrics(path) == [{"step": 1, "a": 1.0}]
    store.requests.clear()
    log.sync()
    assert store.requests == [], "nothing is new"
    write = metrics_log.write_whole

    def slow(*arguments):
        started.set()
        go.wait()
        write(*arguments)

    monkeypatch.setattr(metrics_log, "SECONDS_BETWEEN_UPLOADS", -1.0)
    monkeypatch.setattr(metrics_log, "UPLOADED_BYTES_PER_SECOND", -1.0)
    monkeypatch.setattr(metrics_log, "write_whole", slow)
    log.write(2, {"a": 2.0})
    started.wait()
    log.write(3, {"a": 3.0})
    assert [record["step"] for record in read_metrics(path)] == [1], "the loop does not wait for the store"
    go.set()
    # The older text, which is still being sent, does not replace the newer one.
    log.sync()
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3]
    monkeypatch.setattr(MemoryS3, "pipe_file", refuse)
    log.write(4, {"a": 4.0})
    with pytest.raises(StoreError, match=r"metrics.jsonl: Forbidden"):
        log.sync()
    log.close()


def test_files_that_libraries_write_to_a_disk_are_copied_when_they_changed(store, tmp_path):
    scratch = tmp_path / "run"
    (scratch / "profile").mkdir(parents=True)
    directory = RunDirectory(RUN, scratch)
    assert directory.local == scratch and directory.profile == scratch / "profile" and in_store(directory.metrics)
    (scratch / "events.1").write_text("a")
    (directory.profile / "trace").write_text("b")
    directory.publish()
    assert [(as_path(RUN) / name).read_text() for name in ("events.1", "profile/trace")] == ["a", "b"]
    (scratch / "events.1").write_text("ab")
    store.requests.clear()
    directory.publish()
    assert store.requests == ["PUT"] and (as_path(RUN) / "events.1").read_text() == "ab"
    other = RunDirectory(RUN, scratch, is_first=False)
    other.publish()
    assert other.metrics == scratch / "metrics.jsonl" and str(other.checkpoints) == f"{RUN}/checkpoints"


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(tiny_config(cache), folder)
    return folder


def copied(run: Path, address: str):
    """A finished run on a disk, copied to an address, as ``aws s3 cp --recursive`` does."""
    there = as_path(address)
    for file in run.rglob("*"):
        if file.is_file():
            (there / file.relative_to(run).as_posix()).write_bytes(file.read_bytes())
    return there


@pytest.mark.slow
def test_a_run_at_s3_that_was_killed_equals_one_that_was_not(cache, whole, bucket):
    def kill(run, position):
        if position.number == 10:
            raise Killed

    with pytest.raises(Killed):
        train(tiny_config(cache), bucket, callbacks=[kill])
    directory = RunDirectory(bucket)
    assert directory.checkpoint_steps()[-1] == 9 and read_metrics(directory.metrics)[-1]["step"] >= 9
    assert train(tiny_config(cache), bucket).step == UPDATES
    assert_same_run(whole, directory.path, tiny_config(cache))
    assert json.loads(directory.outcome.read_text())["reason"] == "finished"
    assert len(json.loads(directory.run_record.read_text())) == 2
    assert len(list(directory.path.glob("events.*"))) == 2 and not (directory.path / "train.lock").exists()
    assert load(bucket).translate(["a b"]) == load(whole).translate(["a b"])


@pytest.mark.slow
def test_a_run_that_was_copied_to_s3_resumes_there(cache, whole, bucket, tmp_path):
    copied(copy_until(9, whole, tmp_path / "run"), bucket)
    assert train(tiny_config(cache), bucket).step == UPDATES
    assert_same_run(whole, as_path(bucket), tiny_config(cache))


@pytest.mark.slow
def test_a_save_at_s3_that_fails_before_its_commit_is_not_the_last(cache, bucket, monkeypatch):
    async def fail(self):
        raise StoreError(bucket, "Slow Down", is_outage=True)

    with monkeypatch.context() as patch:

        def cannot_commit(run, position):
            if position.number == 4:
                run.checkpoints.wait()
                patch.setattr(CommittedFolder, "finalize", fail)

        problem = r"cannot be written \(.*Slow Down\); when the store answers, run the same command"
        with pytest.raises(SaveFailed, match=problem) as caught:
            train(tiny_config(cache), bucket, callbacks=[cannot_commit])
        assert caught.value.status == 75
    directory = RunDirectory(bucket)
    assert directory.checkpoint_steps() == [0, 3] and chosen_step(directory, "last") == 3
    assert f"{6}/{IN_PROGRESS}" in directory.checkpoints.objects()
    assert train(tiny_config(cache), bucket).step == UPDATES


@pytest.mark.slow
def test_commands_read_a_run_at_s3_and_write_their_results_there(whole, bucket, tmp_path, monkeypatch, capsys):
    run = copied(whole, bucket)

    def said(*arguments: str) -> str:
        assert main(list(arguments)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    for name, text in (("source", "a b c\n"), ("target", "a b\n")):
        (tmp_path / name).write_text(text)
    files = f"--source={tmp_path}/source", f"--target={tmp_path}/target"
    monkeypatch.chdir(tmp_path)
    of_both = [said("translate", str(each), f"--source={tmp_path}/source") for each in (whole, bucket)]
    assert of_both[0] == of_both[1]
    assert f"scores       {bucket}/evaluation-validation-" in said("evaluate", bucket, "--split=validation")
    assert len(list(run.glob("evaluation-validation-*.txt"))) == 1
    assert f"{bucket}/alignment.npz" in said("align", bucket, *files, "--layer=1")
    assert f"{bucket}/attention-cross.png" in said("attention", bucket, "--text=a b")
    assert (run / "attention-cross.png").read_bytes()[:4] == b"\x89PNG"
    assert f"in {bucket}/checkpoints" in said("checkpoint", "ls", bucket)
    assert f"{bucket}/checkpoints/{UPDATES}" in said("checkpoint", "info", bucket, "--checkpoint=last")
    assert "run directory" in said("checkpoint", "average", bucket, "--count=2", f"--output={tmp_path}/mean")
    said("report", bucket, str(tmp_path / "mean"), f"--output={tmp_path}/report")
    assert f"{bucket}/checkpoints/{UPDATES}" in (tmp_path / "report" / "report.csv").read_text()
    assert "copy" in said("config", f"--config={bucket}")
    config = load_run_config(bucket)
    assert to_json(config) == to_json(load_run_config(whole))
    assert said("score", bucket, *files) == said("score", str(whole), *files)
