"""Local copies of objects of a store, downloaded again only when they have changed there."""

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from transformer_jax.config.json_text import parse_json
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.object_stores import Store, StoredObject, StoreError, for_each
from transformer_jax.runtime.retries import reason_of


class Described(NamedTuple):
    """What differs once a file was written to."""

    size: int
    time: int


class _Copy(NamedTuple):
    version: str
    described: Described


def describe(file: Path) -> Described | None:
    """Size in bytes and time of change of a file, in nanoseconds; None where it is none, or a link."""
    try:
        found = file.lstat()
    except OSError:
        return None
    return Described(found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


class MirroredFiles:
    """Copies below ``folder/files``; ``folder/copies.json`` has the version of each, and the file as it was downloaded.

    Several processes may share them: each looks and changes inside ``locked``.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self.path, self._record = store, folder / "files", folder / "copies.json"
        self._copies: dict[str, _Copy] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Waits until no other process is inside; copies of which there is no record are removed."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with (self.path.parent / "files.lock").open("a") as lock:
            # Where the file system has none, processes that share copies may download one twice.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._copies = _read(self._record)
            if not self._record.is_file():
                shutil.rmtree(self.path, ignore_errors=True)
            try:
                yield
            finally:
                write_whole(self._record, json.dumps(self._copies))

    def update(self, objects: Mapping[str, StoredObject]) -> None:
        """Downloads those that are missing or changed; raises StoreError."""
        old = [name for name, found in objects.items() if not self._is_current(name, found)]

        def download(name: str) -> None:
            file = self.path / name
            try:
                self._store.download(name, file, objects[name].size)
            except OSError as error:
                raise StoreError(f"{self._store.address}/{name}: {file}: {reason_of(error)}") from error
            if described := describe(file):
                self._copies[name] = _Copy(objects[name].version, described)

        for_each(download, old)

    def create_placeholders(self, objects: Mapping[str, StoredObject]) -> None:
        """Makes an empty file of the right size, which takes no room, for each that is neither here nor downloaded."""
        for name, found in objects.items():
            file = self.path / name
            if self._is_current(name, found) or (file.is_file() and file.stat().st_size == found.size):
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            os.truncate(file, found.size)

    def forget(self, names: Iterable[str]) -> None:
        """Deletes copies."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)
            self._copies.pop(name, None)

    def versions(self) -> dict[str, str]:
        """The versions of what was downloaded, by name."""
        return {name: copy.version for name, copy in self._copies.items()}

    def is_as_downloaded(self, name: str, described: Described) -> bool:
        """Whether nobody has written to the copy."""
        return name in self._copies and self._copies[name].described == described

    def send(self, name: str, described: Described) -> None:
        """Uploads a copy that was written to, or a file beside the copies, which ``described`` describes."""
        self._store.write(name, (self.path / name).read_bytes())
        found = self._store.find(name)
        self._copies[name] = _Copy(found.version if found else "", described)

    def _is_current(self, name: str, found: StoredObject) -> bool:
        is_known = found.version != "" and name in self._copies and self._copies[name].version == found.version
        return is_known and (self.path / name).is_file()


def _read(record: Path) -> dict[str, _Copy]:
    try:
        found = parse_json(record.read_bytes())
        return {str(name): _Copy(str(version), Described(*described)) for name, (version, described) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
