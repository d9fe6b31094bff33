"""An in-memory object store that injects errors on request: ``faulty://bucket/name``, an fsspec file system."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from transformer_jax.checkpoints import read_mirror
from transformer_jax.runtime import retries
from transformer_jax.runtime.object_stores import MIRRORS


class Killed(BaseException):
    """What no code catches: the process ends here."""


class FaultyStore(MemoryFileSystem):
    """``faults``: by the number of the operation that writes or reads, what is raised in its place.

    Operations on the lease have no number, since a thread does them when it is time; all of them are refused, or none.
    """

    protocol = "faulty"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    operations: ClassVar[list[str]] = []
    faults: ClassVar[dict[int, BaseException]] = {}
    cut: ClassVar[list[str]] = []
    is_lease_refused = False

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("faulty://"))

    def _count(self, what: str, path: str) -> None:
        if path.endswith("train.lease"):
            if FaultyStore.is_lease_refused:
                raise PermissionError(errno.EACCES, "Access Denied")
            return
        self.operations.append(f"{what} {path}")
        fault = self.faults.pop(len(self.operations), None)
        if fault is not None:
            raise fault

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self._count("write", path)
        super().pipe_file(path, value, mode=mode, **kwargs)

    def put_file(self, lpath, rpath, **kwargs):
        self._count("write", rpath)
        super().put_file(lpath, rpath, **kwargs)

    def cat_file(self, path, **kwargs):
        self._count("read", path)
        return super().cat_file(path, **kwargs)

    def get_file(self, rpath, lpath, **kwargs):
        self._count("read", rpath)
        super().get_file(rpath, lpath, **kwargs)
        if rpath in self.cut:
            self.cut.remove(rpath)
            with open(lpath, "r+b") as file:
                file.truncate(1)

    def rm_file(self, path):
        self._count("remove", path)
        super().rm_file(path)


@contextmanager
def faulty_store(monkeypatch: pytest.MonkeyPatch, mirrors) -> Iterator[type[FaultyStore]]:
    """An empty store; pauses between attempts are short, and mirrors lie in the folder."""
    fsspec.register_implementation("faulty", FaultyStore, clobber=True)
    FaultyStore.store.clear()
    for left in (FaultyStore.operations, FaultyStore.faults, FaultyStore.cut):
        left.clear()
    FaultyStore.pseudo_dirs[:], FaultyStore.is_lease_refused = [""], False
    read_mirror._OPEN.clear()
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
    monkeypatch.setenv(MIRRORS, str(mirrors))
    yield FaultyStore
    FaultyStore.store.clear()
