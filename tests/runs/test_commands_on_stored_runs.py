"""Commands on runs in an object store: what they see, and what becomes of what they wrote."""

import errno
from pathlib import Path

import pytest
from stored_runs import RUN, save, training

from transformer_jax.checkpoints import read_mirror
from transformer_jax.checkpoints.read_mirror import (
    open_read_mirror,
)
from transformer_jax.commands.flag_parsing import parse_flags
from transformer_jax.commands.mirrored_runs import run_on_mirrors
from transformer_jax.commands.registry import load_command
from transformer_jax.config import ConfigError, DataError
from transformer_jax.runtime.object_stores import Store


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
