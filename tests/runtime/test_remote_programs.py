"""Compiled programs in an object store."""

import errno
import os
import subprocess
import sys
import time
import zlib

import pytest
from faulty_store import faulty_store

from transformer_jax.runtime import compilation_cache, remote_programs
from transformer_jax.runtime.object_stores import MIRRORS, Store, StoreError
from transformer_jax.runtime.remote_programs import RemotePrograms

ADDRESS = "faulty://bucket/cache/compiled"


@pytest.fixture
def remote(monkeypatch, tmp_path):
    with faulty_store(monkeypatch, tmp_path / "mirrors") as found:
        yield found


def test_what_one_machine_compiled_another_has_from_the_start(remote, monkeypatch, tmp_path):
    here = RemotePrograms(ADDRESS)
    here.download()
    (here.folder / "jit_step-1-cache").write_bytes(b"program")
    here.upload()
    assert not Store(ADDRESS).listing(), "JAX may still be writing it"
    os.utime(here.folder / "jit_step-1-cache", (time.time() - 60,) * 2)
    for _ in range(2):
        here.upload()
    assert remote.operations == ["write /bucket/cache/compiled/jit_step-1-cache"]
    monkeypatch.setenv(MIRRORS, str(tmp_path / "other"))
    there = RemotePrograms(ADDRESS)
    for _ in range(2):
        there.download()
    assert (there.folder / "jit_step-1-cache").read_bytes() == b"program"
    there.upload()
    assert len(remote.operations) == 2, "neither is it downloaded twice nor sent back"


def test_a_store_that_is_away_costs_the_run_nothing(remote, monkeypatch, capsys):
    monkeypatch.setattr(remote_programs, "_PATIENCE", 0.0)
    here = RemotePrograms(ADDRESS)
    left(here.folder / "a-cache", b"program")
    remote.faults.update(dict.fromkeys((1, 2), PermissionError(errno.EACCES, "Access Denied")))
    for _ in range(3):
        here.upload()
    assert capsys.readouterr().err.count("Access Denied; compiled programs are not shared") == 1
    assert list(Store(ADDRESS).listing()) == ["a-cache"]


def left(file, content: bytes, age: float = 60.0) -> None:
    file.write_bytes(content)
    os.utime(file, (time.time() - age,) * 2)


def test_a_program_that_a_kill_left_half_written_is_neither_shared_nor_kept(remote):
    here = RemotePrograms(ADDRESS)
    whole = zlib.compress(os.urandom(10_000))
    left(here.folder / "half-cache", whole[:5000])
    left(here.folder / "whole-cache", whole)
    left(here.folder / "whole-atime", b"12345678")
    here.upload()
    assert list(Store(ADDRESS).listing()) == ["whole-cache"]
    assert sorted(file.name for file in here.folder.iterdir()) == ["whole-atime", "whole-cache"], (
        "JAX never replaces one"
    )


def test_one_that_is_cut_short_here_is_downloaded_again(remote):
    Store(ADDRESS).write("a-cache", b"program")
    here = RemotePrograms(ADDRESS)
    left(here.folder / "a-cache", b"prog")
    here.download()
    assert (here.folder / "a-cache").read_bytes() == b"program"


def test_at_the_start_it_must_answer(remote, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Access Denied")

    monkeypatch.setattr(remote, "find", refuse)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    with pytest.raises(StoreError, match=f"{ADDRESS}: Access Denied"):
        compilation_cache.start_jax("faulty://bucket/cache/")


def test_jax_has_the_local_copy(remote, monkeypatch, tmp_path):
    told = {}
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setattr(compilation_cache.jax.config, "update", told.__setitem__)
    compilation_cache.start_jax("faulty://bucket/cache/")
    folder = RemotePrograms(ADDRESS).folder
    assert folder.is_relative_to(tmp_path)
    assert told["jax_compilation_cache_dir"] == str(folder)
    assert told["jax_persistent_cache_enable_xla_caches"] == "none", "keys would be of one machine"


AT_EXIT = """
import fsspec, sys
from fsspec.implementations.local import LocalFileSystem
from concurrent.futures import ThreadPoolExecutor
threads = ThreadPoolExecutor(1)
class Store(LocalFileSystem):
    protocol = "kept"
    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        # As the libraries of stores do; once the interpreter ends it raises.
        threads.submit(super().pipe_file, path, value, mode=mode).result()
    @classmethod
    def _strip_protocol(cls, path):
        return sys.argv[1] + "/" + path.removeprefix("kept://") if path.startswith("kept://") else path
fsspec.register_implementation("kept", Store)
from transformer_jax.runtime.remote_programs import local_programs
import transformer_jax.__main__ as command

def run_command(arguments):
    (local_programs("kept://bucket/compiled") / "a-cache").write_bytes(b"program")
    return 0

command.run_command = run_command
sys.exit(command.main(["x"]))
"""


def test_what_a_short_command_compiled_is_uploaded_at_its_end(tmp_path):
    (tmp_path / "bucket" / "compiled").mkdir(parents=True)
    environment = os.environ | {MIRRORS: str(tmp_path / "mirrors")}
    subprocess.run([sys.executable, "-c", AT_EXIT, str(tmp_path)], env=environment, check=True)
    assert (tmp_path / "bucket" / "compiled" / "a-cache").read_bytes() == b"program"
