"""Writing and reading files that others write and read at the same moment."""

import os
from pathlib import Path

import pytest

from transformer_jax.config import ConfigError
from transformer_jax.files import atomic_files
from transformer_jax.files.atomic_files import appearing_file, write_whole
from transformer_jax.run_directory.layout import RunDirectory


def test_two_hosts_whose_processes_have_one_number_do_not_meet(tmp_path, monkeypatch):
    """The second writes while the first has not yet given its file the name."""
    target, sync = tmp_path / "file", os.fsync
    monkeypatch.setattr("os.getpid", lambda: 1)

    def other_comes_between(descriptor):
        monkeypatch.setattr("os.fsync", sync)
        write_whole(target, "the other\n")
        sync(descriptor)

    monkeypatch.setattr("os.fsync", other_comes_between)
    write_whole(target, "the first\n")
    assert target.read_text() == "the first\n"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_file_that_fails_half_way_leaves_the_old_one_and_nothing_else(tmp_path):
    target = tmp_path / "file"
    write_whole(target, "old\n")
    with pytest.raises(ValueError, match="half"), appearing_file(target) as file:
        file.write(b"new")
        raise ValueError("half")
    assert target.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with appearing_file(tmp_path / "folder" / "file") as file:
        file.write(b"new")
    assert (tmp_path / "folder" / "file").read_bytes() == b"new"


def test_what_killed_processes_left_of_a_file_is_removed(tmp_path):
    mine, others = tmp_path / "run.json", [tmp_path / name for name in ("run.json", "run.json.partial", "my.partial")]
    left = tmp_path / f"run.json.{'0' * 32}.partial"
    for file in (*others, left):
        file.write_text("{}")
    atomic_files.remove_partial(mine)
    assert sorted(tmp_path.iterdir()) == sorted(others)


@pytest.mark.parametrize("address", ["gs://bucket/run", "s3:/bucket/run", Path("gs://bucket/run")])
def test_an_object_store_is_no_local_folder(address):
    if not str(address).startswith("gs://"):
        with pytest.raises(ConfigError, match="not the address of a run; write s3://BUCKET/FOLDER"):
            RunDirectory(address)
    for refuse in (lambda path: atomic_files.require_writable(path, "--workdir"),):
        with pytest.raises(ConfigError, match="--workdir: .* is in an object store"):
            refuse(address)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    """``--output=/dev/null`` must not replace the device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "content")
    assert os.read(reader, 100) == b"content" and pipe.is_fifo()
    os.close(reader)


def test_a_link_to_nothing_chooses_no_file(tmp_path):
    link, victim = tmp_path / "picture.png", tmp_path / "victim"
    link.symlink_to(victim)
    assert atomic_files.require_writable_file(link, "--output") == link
    assert link.is_symlink() and not victim.exists()
    write_whole(link, "content")
    assert not link.is_symlink() and not victim.exists()
