"""Writing and reading files that others write and read at the same moment."""

import os

import pytest

from transformer_jax.config import DataError
from transformer_jax.runtime.atomic_files import read_records, write_whole


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


def test_records_up_to_what_a_kill_cut_short(tmp_path):
    file = tmp_path / "metrics.jsonl"
    for text, found in (
        ("", []),
        ('{"a": 1}\n\n{"a": 2}\n{"a', [{"a": 1}, {"a": 2}]),
        ('{"a": 1}\n{"a": 2}', [{"a": 1}]),
    ):
        file.write_text(text)
        assert read_records(file) == found
    file.write_text('{"a": 1}\n{"a\n{"a": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: not a record"):
        read_records(file)
    with pytest.raises(DataError, match="no such file"):
        read_records(tmp_path / "nowhere")
