"""Runs in an object store that are read: what is downloaded, what is sent back, what is not asked for."""

import errno
import json
import shutil
from pathlib import Path

import pytest
from stored_runs import RUN, save, steps, training

from transformer_jax.checkpoints import read_mirror
from transformer_jax.checkpoints.read_mirror import (
    ReadMirror,
    fetch_arrays,
    open_read_mirror,
    open_run,
    refresh_mirrors,
)
from transformer_jax.commands.flag_parsing import parse_flags
from transformer_jax.commands.mirrored_runs import run_on_mirrors
from transformer_jax.commands.registry import load_command
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, from_dict, resolve, to_dict, to_json
from transformer_jax.config.addresses import is_unasked
from transformer_jax.runtime.file_digests import changed_files
from transformer_jax.runtime.object_stores import Store


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


def test_results_that_could_not_be_uploaded_are_said_and_the_next_command_uploads_them(store, monkeypatch):
    with training() as folder:
        save(folder, 1)
    values = parse_flags(load_command("evaluate").define_flags, [RUN])

    def evaluate(given) -> int:
        (Path(given.workdir) / "evaluation-test-1.json").write_text("{}")
        store.faults[len(store.operations) + 1] = PermissionError(errno.EACCES, "Access Denied")
        return 0

    assert run_on_mirrors("evaluate", evaluate, values) == 1
    assert not Store(RUN).read("evaluation-test-1.json")
    read_mirror._OPEN.clear()
    values = parse_flags(load_command("evaluate").define_flags, [RUN])
    assert run_on_mirrors("evaluate", lambda given: 0, values) == 0
    assert Store(RUN).read("evaluation-test-1.json") == b"{}"


def test_the_error_of_a_command_is_not_replaced_by_that_of_the_store(store, capsys):
    with training() as folder:
        save(folder, 1)
    values = parse_flags(load_command("evaluate").define_flags, [RUN])

    def fail(given) -> int:
        (open_read_mirror(RUN).path / "notes.txt").write_text("a")
        store.faults[len(store.operations) + 1] = PermissionError(errno.EACCES, "Access Denied")
        raise DataError("wrong")

    with pytest.raises(DataError, match="^wrong"):
        run_on_mirrors("evaluate", fail, values)
    assert "notes.txt: Access Denied. The results are in" in capsys.readouterr().err


def test_nothing_is_renewed_or_uploaded_to_see_what_would_be_deleted(store):
    with training() as folder:
        save(folder, 1)
    with training():
        values = parse_flags(load_command("checkpoint").define_flags, ["prune", RUN, "--keep_last=1", "--dry_run"])
        begun = len(store.operations)
        assert run_on_mirrors("checkpoint", lambda given: 0, values) == 0
        assert not any(operation.startswith("write") for operation in store.operations[begun:])


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
