"""Local copies of objects of a store, downloaded again only when they have changed there."""

import fcntl
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from transformer_jax.config import DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.described_files import Described, describe
from transformer_jax.runtime.object_stores import MIRRORS, Store, StoredObject, StoreError, for_each, notify
from transformer_jax.runtime.retries import reason_of


class _Copy(NamedTuple):
    """A copy as it was downloaded; without version and description while a placeholder, or what is arriving, is there."""

    version: str
    described: Described | None
    # CRC-32 of a result, which touching it does not change; arrays are checked when they are restored.
    digest: int | None


_ARRIVING = _Copy("", None, None)


class MirroredFiles:
    """Copies below ``folder/files``; ``folder/copies.json`` has the version of each, and the file as it was downloaded.

    Several processes may share them: each looks at the store, and changes copies, inside ``locked``. Files whose name
    ``is_result`` are written by commands, and kept until they are sent; any other that differs from its record is damaged.
    """

    def __init__(self, store: Store, folder: Path, is_result: Callable[[str], bool] = lambda name: False) -> None:
        self._store, self.path, self._record = store, folder / "files", folder / "copies.json"
        self._is_result = is_result
        self._copies: dict[str, _Copy] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Waits until no other process is inside; copies of which there is no record are removed, but for results.

        Raises DataError where nothing can be locked.
        """
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "files.lock").open("a") as lock:
            _lock(lock, f"{self._store.address}: another command downloads this to {folder}; this one waits")
            self._copies = _read(self._record)
            if not self._copies:
                self._remove_unrecorded()
            # What a killed process left.
            for partial in self.path.rglob("*.partial"):
                partial.unlink(missing_ok=True)
            try:
                yield
            finally:
                self._save()

    def update(self, objects: Mapping[str, StoredObject]) -> None:
        """Downloads those that are missing or changed, but not over a copy that was written to; raises StoreError."""
        old = [
            name for name, found in objects.items() if not self._is_current(name, found) and not self.is_changed(name)
        ]
        # If this process is killed, the files are of the store all the same.
        self._copies |= dict.fromkeys(old, _ARRIVING)
        self._save()

        def download(name: str) -> None:
            file = self.path / name
            try:
                self._store.download(name, file, objects[name].size)
                digest = zlib.crc32(file.read_bytes()) if self._is_result(name) else None
                self._copies[name] = _Copy(objects[name].version, describe(file), digest)
            except OSError as error:
                raise StoreError(f"{self._store.address}/{name}: {file}: {reason_of(error)}") from error

        for_each(download, old)

    def create_placeholders(self, objects: Mapping[str, StoredObject]) -> None:
        """Makes an empty file of the right size, which takes no room, for each that is not here."""
        for name, found in objects.items():
            file = self.path / name
            if not file.is_file():
                self._copies[name] = _ARRIVING
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
                os.truncate(file, found.size)

    def forget(self, names: Iterable[str]) -> None:
        """Deletes copies, but none that was written to."""
        for name in [name for name in names if not self.is_changed(name)]:
            (self.path / name).unlink(missing_ok=True)
            self._copies.pop(name, None)

    def versions(self) -> dict[str, str]:
        """The versions of what was downloaded, by name."""
        return {name: copy.version for name, copy in self._copies.items()}

    def is_changed(self, name: str) -> bool:
        """Whether this is a result that is not as it was downloaded, but was written here."""
        copy = self._copies.get(name)
        if not self._is_result(name) or copy == _ARRIVING or not (self.path / name).is_file():
            return False
        return copy is None or not self._is_as_downloaded(name)

    def send(self, name: str) -> None:
        """Uploads a file that was written here."""
        file = self.path / name
        described, content = describe(file), file.read_bytes()
        self._store.write(name, content)
        found = self._store.find(name)
        self._copies[name] = _Copy(found.version if found else "", described, zlib.crc32(content))

    def _is_current(self, name: str, found: StoredObject) -> bool:
        is_known = found.version != "" and name in self._copies and self._copies[name].version == found.version
        return is_known and self._is_as_downloaded(name)

    def _is_as_downloaded(self, name: str) -> bool:
        file, copy = self.path / name, self._copies[name]
        described = describe(file)
        if described is None:
            return False
        return described == copy.described or (copy.digest is not None and copy.digest == zlib.crc32(file.read_bytes()))

    def _remove_unrecorded(self) -> None:
        """Nobody knows which version these files are of."""
        kept = self.path.with_name(f"unrecorded-{uuid.uuid4().hex[:6]}")
        for file in [file for file in self.path.rglob("*") if file.is_file()]:
            name = file.relative_to(self.path).as_posix()
            if self._is_result(name):
                (kept / name).parent.mkdir(parents=True, exist_ok=True)
                file.rename(kept / name)
        shutil.rmtree(self.path, ignore_errors=True)
        if kept.is_dir():
            notify(f"{self._store.address}: the record of the local copies is lost; results among them are in {kept}")

    def _save(self) -> None:
        write_whole(self._record, json.dumps(self._copies))


def _lock(file: TextIO, remark: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        notify(remark)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        raise DataError(f"{file.name}: cannot be locked ({reason_of(error)}); {MIRRORS} names another folder") from None


def _read(record: Path) -> dict[str, _Copy]:
    try:
        found = parse_json(record.read_bytes())
        return {str(name): _copy(*each) for name, each in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _copy(version: str, described: list[int] | None, digest: int | None) -> _Copy:
    found = None if described is None else Described(*described)
    return _Copy(str(version), found, None if digest is None else int(digest))
