"""Runs in an object store: commands work in a local copy, whose files are downloaded and uploaded.

With ``--distributed`` Orbax writes and reads checkpoints there itself (``checkpoints/buckets.py``); the local copy has the
other files.
"""

import atexit
import fcntl
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.config.checks import is_address
from transformer_jax.config.errors import complain
from transformer_jax.runtime.background import in_background
from transformer_jax.runtime.object_store import (
    changed_objects,
    open_store,
    remove_object,
    store_errors,
    write_object_digests,
)
from transformer_jax.runtime.open_copies import IN_PROGRESS, MARKER, OBJECTS, OPEN, LockLost, StoreError, scratch_folder
from transformer_jax.runtime.store_lock import StoreLock

# Seconds between two uploads of a run that trains, and between attempts to upload it at the end.
PAUSE = 30.0
PAUSES_AT_END = (1, 2, 4, 8, 16, 32, 64)
SECONDS_UNTIL_LOCKED = 60.0

OUTCOME = "outcome.json"

_OWN_CHECKPOINT = re.compile(r"checkpoints/[0-9]{1,18}")
_IN_CHECKPOINT = re.compile(r"((?:.*/)?checkpoints/[0-9]{1,18})/(.+)")
# Traces, events and pictures, which no command reads; and files that stay on this machine, such as a checkpoint being written.
_NOT_READ = re.compile(r"(.*/)?(profile/.*|events\.[^/]*|[^/]*\.(png|svg|pdf|html))")
_LOCAL = re.compile(r"(.*/)?((damaged-|[0-9]+\.orbax-checkpoint-tmp)[^/]*/.*|[^/]*\.(partial|lock))")


class StoredFolder:
    """The objects below ``address``, and ``path``, a new local folder with them.

    Arrays of checkpoints are downloaded when a checkpoint is restored; until then there are sparse files of their size. A
    checkpoint without ``MARKER`` or with ``IN_PROGRESS`` is being written or deleted, and is ignored. With ``is_direct`` Orbax
    writes and reads the checkpoints at the address: none is uploaded, and the local folder has no arrays.

    Raises ConfigError without a library for the store, StoreError, and DataError at names that are not valid file names.
    """

    def __init__(self, address: str, path: Path, *, is_direct: bool = False, lock: StoreLock | None = None) -> None:
        self.address, self.path, self.is_direct, self.lock = address.rstrip("/"), path, is_direct, lock
        self._files = open_store(self.address)
        self._uploading = threading.Lock()
        self._checkpoints: dict[str, set[str]] = {}
        self._markers: dict[str, bytes] = {}
        # Size and time of the files as the store has them, by name.
        self._sent: dict[str, tuple[int, int]] = {}
        # Names of objects that this process uploaded.
        self._own: set[str] = set()
        # Sizes of arrays that are not downloaded yet.
        self._absent: dict[str, int] = {}
        path.mkdir(parents=True, exist_ok=True)
        OPEN[path] = self
        self._download()

    def _download(self) -> None:
        """Downloads all files that commands read but the arrays."""
        found, wanted = self._listing(), []
        for name in found:
            if in_checkpoint := _IN_CHECKPOINT.fullmatch(name):
                self._checkpoints.setdefault(in_checkpoint[1], set()).add(name)
        complete = {
            each
            for each, names in self._checkpoints.items()
            if f"{each}/{MARKER}" in names and f"{each}/{IN_PROGRESS}" not in names
        }
        for name, size in found.items():
            in_checkpoint = _IN_CHECKPOINT.fullmatch(name)
            if (
                _NOT_READ.fullmatch(name)
                or _LOCAL.fullmatch(name)
                or (in_checkpoint and in_checkpoint[1] not in complete)
            ):
                continue
            # Items with arrays: params, trained_params, rest.
            if in_checkpoint and "/" in in_checkpoint[2] and not in_checkpoint[2].startswith(("progress/", "metrics/")):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                if not self.is_direct:
                    self._absent[name] = size
                    (self.path / name).touch()
                    os.truncate(self.path / name, size)
            else:
                wanted.append(name)
        self._get(wanted)
        self._markers = {each: self._marker(each) for each in complete}

    def _listing(self) -> dict[str, int]:
        """Size of each object by its name below the address."""
        with store_errors(self.address):
            self._files.fs.invalidate_cache()
            found = self._files.find("", detail=True)
        objects = {name: info["size"] for name, info in found.items() if name and not name.endswith("/")}
        for name in objects:
            if not name.isprintable() or "\\" in name or {"", ".", ".."} & set(name.split("/")):
                raise DataError(f"{self.address}: holds {name[:100]!r}, which is not a valid file name; remove it")
        return objects

    def fetch(self, folder: Path, items: Iterable[str]) -> list[str]:
        """Downloads the arrays of some items of a checkpoint, unless that was done before.

        Returns the files whose digests in the store, or whose sizes after the download, differ; the first are not downloaded.
        """
        items, checkpoint = list(items), folder.relative_to(self.path).as_posix()
        if (folder / OBJECTS).is_file() and (changed := changed_objects(f"{self.address}/{checkpoint}", items)):
            return changed
        wanted = [name for name in self._absent if name.startswith(tuple(f"{checkpoint}/{item}/" for item in items))]
        self._get(wanted)
        cut = [name for name in wanted if (self.path / name).stat().st_size != self._absent[name]]
        for name in set(wanted) - set(cut):
            del self._absent[name]
        return cut

    def upload_files(self, *, later: str = "") -> None:
        """Uploads changed files and removes deleted ones, except checkpoints and the changed file ``later``."""
        with self._uploading:
            self.require_lock()
            if self.lock and not (self.path / "config.json").is_file():
                # The folder was removed or kept, which must not empty the store.
                return
            now = self._described()
            if later in now and self._sent.get(later) != now[later]:
                del now[later]
            changed = [name for name, seen in now.items() if self._sent.get(name) != seen]
            self._put(changed)
            self._own.update(changed)
            # A reader removes no file of the run: here it may be missing because somebody cleaned the disk.
            removable = self._sent if self.lock else self._own & self._sent.keys()
            self._remove([name for name in removable if name not in now])
            self._sent = now

    def upload(self) -> None:
        """Uploads the logs of a run, then its checkpoints, so that no log is behind one, and last ``outcome.json``."""
        if not (self.path / "config.json").is_file():
            # The run has not begun, or somebody removed the folder, which must not empty the store.
            return
        if self.is_direct:
            return self.upload_files()
        has_ended = (self.path / OUTCOME).is_file()
        # In order, so that readers see none before an older one.
        steps = sorted(int(each.name) for each in self.path.glob("checkpoints/[0-9]*") if each.name.isdigit())
        here = [f"checkpoints/{step}" for step in steps]
        markers = {name: self._marker(name) for name in here}
        self.upload_files(later=OUTCOME)
        for name, marker in markers.items():
            if marker and self._markers.get(name) != marker:
                self._upload_checkpoint(name, marker)
        # Of a checkpoint that is damaged here, the store has a sound copy.
        kept = {*here, *(f"checkpoints/{each.name.split('-')[1]}" for each in self.path.glob("damaged-*"))}
        if any(self._markers.get(name) for name in kept):
            for name in [name for name in self._checkpoints if _OWN_CHECKPOINT.fullmatch(name) and name not in kept]:
                self._remove_marker(name)
                self._remove(sorted(self._checkpoints.pop(name)))
        if has_ended:
            self.upload_files()

    def upload_at_end(self) -> None:
        """Uploads a run, of a reader its files, again and again for two minutes.

        What is not uploaded then stays in a folder that the error names.
        """
        upload = self.upload if self.lock else self.upload_files
        problem: StoreError | OSError | None = None
        try:
            for pause in (*PAUSES_AT_END, 0):
                try:
                    return upload()
                except (StoreError, OSError) as error:
                    problem = error
                    if isinstance(error, LockLost):
                        break
                time.sleep(pause)
        except BaseException:
            complain(f"not everything is uploaded: it is in {self.keep()}")
            raise
        raise StoreError(f"{problem}; not everything is uploaded: it is in {self.keep()}")

    def require_lock(self) -> None:
        """Raises LockLost where this process trains the run and another one took its lock over, or StoreError."""
        if self.lock:
            self.lock.require_held()

    def leave(self) -> None:
        """Uploads the run and releases its lock, if this process trains it."""
        if self.lock:
            try:
                self.upload_at_end()
            finally:
                self.lock.release()

    def keep(self) -> Path:
        """Renames the folder, so that neither the next training here nor the end of a reader removes it; returns the path."""
        parent = self.path.parent if self.lock else scratch_folder()
        kept = parent / f"{self.path.name}-{uuid.uuid4().hex[:6]}"
        with self._uploading:
            self.path.rename(kept)
        return kept

    def _upload_checkpoint(self, name: str, marker: bytes) -> None:
        files = self._files_of(name)
        self._remove_marker(name)
        stale = self._checkpoints.get(name, set()) - files
        self._checkpoints[name] = files | stale
        try:
            self._put(sorted(files - {f"{name}/{MARKER}"}))
        except StoreError:
            if self._files_of(name) == files:
                raise
        if self._files_of(name) != files:
            # The run is deleting it.
            return
        self._remove(sorted(stale))
        write_object_digests(f"{self.address}/{name}")
        self._put([f"{name}/{MARKER}"])
        self._checkpoints[name], self._markers[name] = files | {f"{name}/{OBJECTS}"}, marker

    def _files_of(self, checkpoint: str) -> set[str]:
        return {
            each.relative_to(self.path).as_posix() for each in (self.path / checkpoint).rglob("*") if each.is_file()
        }

    def _remove_marker(self, checkpoint: str) -> None:
        if self._markers.pop(checkpoint, None):
            self._remove([f"{checkpoint}/{MARKER}"])

    def _marker(self, checkpoint: str) -> bytes:
        try:
            return (self.path / checkpoint / MARKER).read_bytes()
        except FileNotFoundError:
            return b""

    def _described(self) -> dict[str, tuple[int, int]]:
        """Size and time of the files outside checkpoints, by name."""
        found = {}
        for file in self.path.rglob("*"):
            name = file.relative_to(self.path).as_posix()
            if not (_IN_CHECKPOINT.fullmatch(name) or _LOCAL.fullmatch(name) or file.is_symlink()) and file.is_file():
                found[name] = _size_and_time(file)
        return found

    def _get(self, names: list[str]) -> None:
        """Downloads files; a download that is cut short leaves the old file."""
        partial = [Path(f"{self.path / name}.partial") for name in names]
        for file in partial:
            file.parent.mkdir(parents=True, exist_ok=True)
        if names:
            with store_errors(self.address):
                self._files.get(names, [str(file) for file in partial])
        for name, file in zip(names, partial, strict=True):
            if not _IN_CHECKPOINT.fullmatch(name):
                self._sent[name] = _size_and_time(file)
            file.replace(self.path / name)

    def _put(self, names: list[str]) -> None:
        if names:
            with store_errors(self.address):
                self._files.put([str(self.path / name) for name in names], names)

    def _remove(self, names: list[str]) -> None:
        with store_errors(self.address):
            for name in names:
                remove_object(self._files, name)


def _size_and_time(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


@cache
def copy_to_read(address: str, *, is_direct: bool = False) -> StoredFolder:
    """A copy of the run, or of the folder of runs, at an address, until the process ends.

    Raises DataError where there is no run.
    """
    scheme, _, rest = address.rstrip("/").partition("://")
    stored = StoredFolder(address, _folder_of_this_process() / scheme / rest, is_direct=is_direct)
    if not any(stored.path.glob("config.json")) and not any(stored.path.glob("*/config.json")):
        found = ", ".join(sorted(path.name for path in stored.path.glob("*"))[:8]) or "nothing"
        raise DataError(f"{stored.address}: not a run: no config.json in it or one level below (found {found})")
    return stored


def new_copy(address: str) -> StoredFolder:
    """A copy with what the store has now; earlier copies stay on disk, since a model may still read from them."""
    copy_to_read.cache_clear()
    _folder_of_this_process.cache_clear()
    return copy_to_read(address)


@cache
def _folder_of_this_process() -> Path:
    """A new folder, which the end of the process removes; removes folders of killed processes of this host."""
    prefix = f"read-{platform.node()}-"
    for killed in scratch_folder().glob(f"{prefix}*"):
        with suppress(OSError):
            held = _lock(killed)
            # Its process may not have locked a new one yet.
            if time.time() - killed.stat().st_mtime > SECONDS_UNTIL_LOCKED:
                shutil.rmtree(killed, ignore_errors=True)
            os.close(held)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=scratch_folder()))
    with suppress(OSError):
        _lock(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _lock(folder: Path) -> int:
    """Locks a folder until the file descriptor is closed or the process ends; raises OSError while another process has it."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


@contextmanager
def folder_to_train(workdir: str, *, is_distributed: bool = False) -> Iterator[Path]:
    """The folder of a run; for a run in a store a local copy, uploaded every ``PAUSE`` seconds and at the end, then removed.

    With ``is_distributed`` process 0 alone locks the address and uploads. Raises AddressIsBusy while another process trains
    there, and StoreError, which at the end names the folder that was not uploaded completely.
    """
    if not is_address(workdir):
        yield Path(workdir)
        return
    address = workdir.rstrip("/")
    lock, index = StoreLock(address), 0
    with ExitStack() as held:
        if is_distributed:
            # It imports JAX.
            from transformer_jax.runtime import distributed

            index = distributed.join_processes()
            with distributed.first_goes_first("lock of the run"):
                held.enter_context(nullcontext() if index else lock.held())
        else:
            held.enter_context(lock.held())
        folder = (
            scratch_folder() / f"train-{sha256(address.encode()).hexdigest()[:16]}-{index}" / address.rpartition("/")[2]
        )
        # A killed process may have left an older copy.
        shutil.rmtree(folder, ignore_errors=True)
        stored = StoredFolder(address, folder, is_direct=is_distributed, lock=None if index else lock)
        if not index:
            sys.stderr.write(f"{address}: trained in {folder}, and uploaded every {PAUSE:.0f} s\n")
        try:
            with nullcontext() if index else in_background(partial(_upload_meanwhile, stored), "uploads"):
                yield folder
        finally:
            if not index:
                stored.upload_at_end()
            # A worker of a sweep trains other runs next.
            stored.lock = None
            shutil.rmtree(folder, ignore_errors=True)
        if is_distributed:
            distributed.wait_for_all("uploads")


def _upload_meanwhile(stored: StoredFolder, over: threading.Event) -> None:
    is_failing = False
    while not over.wait(PAUSE):
        try:
            stored.upload()
            is_failing = False
        except LockLost:
            return
        except (StoreError, OSError) as error:
            if not is_failing:
                complain(f"{error}; the run continues, and is uploaded when the store answers")
            is_failing = True
