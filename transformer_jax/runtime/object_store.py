"""Runs in an object store (``s3://``, ``gs://``): commands work in a local folder, which fsspec downloads and uploads.

With ``--distributed`` Orbax writes and reads checkpoints there itself (``checkpoints/buckets.py``); the local folder has the
other files.
"""

import atexit
import itertools
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache, partial
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any

from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.checks import absolute_path, is_address, is_unasked, without_mark
from transformer_jax.config.errors import first_line
from transformer_jax.runtime.atomic_files import appearing_file, write_whole
from transformer_jax.runtime.background import in_background

SCRATCH = "TRANSFORMER_JAX_SCRATCH"
# Seconds between two uploads of a run that trains, and between attempts to upload it at the end.
PAUSE = 30.0
PAUSES_AT_END = (1, 2, 4, 8, 16, 32, 64)
# Seconds after which a trainer that no longer renews its lock of an address counts as dead.
LEASE = 30.0
# A store cannot rename a folder: this file of a checkpoint is uploaded last and deleted first.
MARKER = "_CHECKPOINT_METADATA"
# Orbax writes MARKER earlier; a checkpoint that it writes to a store has IN_PROGRESS until it is complete, then COMMIT alone.
IN_PROGRESS, COMMIT = "in_progress", "commit_success.txt"

_OWN_CHECKPOINT = re.compile(r"checkpoints/[0-9]{1,18}")
_IN_CHECKPOINT = re.compile(r"((?:.*/)?checkpoints/[0-9]{1,18})/(.+)")
# Traces and events, which no command reads; and files that stay on this machine, such as a checkpoint being written.
_NOT_READ = re.compile(r"(.*/)?(profile/.*|events\.[^/]*)")
_LOCAL = re.compile(r"(.*/)?((damaged-|[0-9]+\.orbax-checkpoint-tmp)[^/]*/.*|[^/]*\.(partial|lock))")
# What fsspec's libraries call the version of an object: S3, GCS, others.
_VERSIONS = "ETag", "generation", "etag", "LastModified", "updated", "modified", "mtime", "created"
_OPEN: dict[Path, "StoredFolder"] = {}


class StoreError(DataError):
    """An object store refused, or did not answer. The message names the address."""


class LockLost(StoreError):
    """Another process trains at the address: it took this process for dead."""


class AddressIsBusy(ConfigError):
    """Another process trains at the address."""


class StoredFolder:
    """The objects below ``address``, and ``path``, a new local folder with them.

    Arrays of checkpoints are downloaded when a checkpoint is restored; until then there are sparse files of their size. A
    checkpoint without ``MARKER`` or with ``IN_PROGRESS`` is being written or deleted, and is ignored. With ``is_direct`` Orbax
    writes and reads the checkpoints at the address: none is uploaded, and the local folder has no arrays.

    Raises ConfigError without a library for the store, StoreError, and DataError at names that are not valid file names.
    """

    def __init__(self, address: str, path: Path, *, is_direct: bool = False, lock: "StoreLock | None" = None) -> None:
        self.address, self.path, self.is_direct, self.lock = address.rstrip("/"), path, is_direct, lock
        self._files, self._root = _opened(self.address)
        self._uploading = threading.Lock()
        self._checkpoints: dict[str, set[str]] = {}
        self._markers: dict[str, bytes] = {}
        # Size and time of the files as the store has them, by name.
        self._sent: dict[str, tuple[int, int]] = {}
        # Size and version of the objects that were downloaded, and names of objects that this process uploaded.
        self._read: dict[str, tuple[int, str]] = {}
        self._own: set[str] = set()
        # Arrays that are not downloaded yet.
        self._absent: set[str] = set()
        path.mkdir(parents=True, exist_ok=True)
        _OPEN[path] = self
        self._download()

    def refresh(self) -> None:
        """Uploads files that this process wrote, and downloads what others wrote since; removes here what they removed."""
        self.upload_files()
        self._download()

    def _download(self) -> None:
        found, wanted = self._listing(), []
        read: dict[str, tuple[int, str]] = {}

        def is_complete(checkpoint: str) -> bool:
            return f"{checkpoint}/{MARKER}" in found and f"{checkpoint}/{IN_PROGRESS}" not in found

        self._checkpoints = {}
        for name, state in found.items():
            in_checkpoint = _IN_CHECKPOINT.fullmatch(name)
            if in_checkpoint:
                self._checkpoints.setdefault(in_checkpoint[1], set()).add(name)
            if (
                _NOT_READ.fullmatch(name)
                or _LOCAL.fullmatch(name)
                or (in_checkpoint and not is_complete(in_checkpoint[1]))
            ):
                continue
            read[name] = state
            if self._read.get(name) == state or name in self._own:
                continue
            # Items with arrays: params, trained_params, rest.
            if in_checkpoint and "/" in in_checkpoint[2] and not in_checkpoint[2].startswith(("progress/", "metrics/")):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                if not self.is_direct:
                    self._absent.add(name)
                    (self.path / name).touch()
                    os.truncate(self.path / name, state[0])
            else:
                wanted.append(name)
        for name in self._read.keys() - read.keys() - self._own:
            self._sent.pop(name, None)
            (self.path / name).unlink(missing_ok=True)
        for folder in self.path.glob("**/checkpoints/[0-9]*"):
            name = folder.relative_to(self.path).as_posix()
            if folder.name.isdigit() and folder.is_dir() and not is_complete(name):
                shutil.rmtree(folder)
        self._get(wanted)
        self._absent &= read.keys()
        self._read = read
        for checkpoint in self._checkpoints:
            if is_complete(checkpoint):
                self._markers[checkpoint] = self._marker(checkpoint)

    def _listing(self) -> dict[str, tuple[int, str]]:
        """Size and version of each object by its name below the address."""
        with self._store_errors():
            self._files.invalidate_cache()
            found = self._files.find(self._root, detail=True)
        below = f"{self._root}/"
        names = {path: path.removeprefix(below) for path in found if path.startswith(below)}
        # The libraries have different words for the version.
        versions = {
            path: next((str(info[key]) for key in _VERSIONS if key in info), "") for path, info in found.items()
        }
        objects = {
            name: (found[path]["size"], versions[path])
            for path, name in names.items()
            if name and not name.endswith("/")
        }
        for name in objects:
            if not name.isprintable() or "\\" in name or {"", ".", ".."} & set(name.split("/")):
                raise DataError(f"{self.address}: holds {name[:100]!r}, which is not a valid file name; remove it")
        return objects

    def fetch(self, folder: Path, items: Iterable[str]) -> None:
        """Downloads the arrays of some items of a checkpoint, unless that was done before."""
        inside = tuple(f"{folder.relative_to(self.path).as_posix()}/{item}/" for item in items)
        wanted = [name for name in self._absent if name.startswith(inside)]
        self._get(wanted)
        self._absent -= set(wanted)

    def upload_files(self, *, later: str = "") -> None:
        """Uploads changed files and removes deleted ones, except checkpoints and the changed file ``later``."""
        with self._uploading:
            if self.lock:
                self.lock.require_held()
                if not (self.path / "config.json").is_file():
                    # The folder was removed or kept, which must not empty the store.
                    return
            now = self._described()
            if later in now and self._sent.get(later) != now[later]:
                del now[later]
            changed = [name for name, seen in now.items() if self._sent.get(name) != seen]
            self._put(changed)
            self._own.update(changed)
            self._remove([name for name in self._sent if name not in now])
            self._sent = now

    def upload(self) -> None:
        """Uploads the logs of a run, then its checkpoints, so that no log is behind one, and last ``outcome.json``."""
        if not (self.path / "config.json").is_file():
            # The run has not begun, or somebody removed the folder, which must not empty the store.
            return
        if self.is_direct:
            return self.upload_files()
        has_ended = (self.path / "outcome.json").is_file()
        here = [f"checkpoints/{each.name}" for each in self.path.glob("checkpoints/[0-9]*") if each.name.isdigit()]
        markers = {name: self._marker(name) for name in here}
        self.upload_files(later="outcome.json")
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

    def keep(self) -> Path:
        """Renames the folder, so that the next training here does not remove it; returns the new path."""
        kept = self.path.with_name(f"{self.path.name}-{uuid.uuid4().hex[:6]}")
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
        self._put([f"{name}/{MARKER}"])
        self._checkpoints[name], self._markers[name] = files, marker

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
        here, there = [self.path / name for name in names], [f"{self._root}/{name}" for name in names]
        for file in here:
            file.parent.mkdir(parents=True, exist_ok=True)
        if names:
            with self._store_errors():
                self._files.get(there, [f"{file}.partial" for file in here])
        for name, file in zip(names, here, strict=True):
            whole = Path(f"{file}.partial")
            if not _IN_CHECKPOINT.fullmatch(name):
                self._sent[name] = _size_and_time(whole)
            whole.replace(file)

    def _put(self, names: list[str]) -> None:
        here, there = [str(self.path / name) for name in names], [f"{self._root}/{name}" for name in names]
        if names:
            with self._store_errors():
                self._files.put(here, there)

    def _remove(self, names: list[str]) -> None:
        with self._store_errors():
            for name in names:
                if self._files.exists(f"{self._root}/{name}"):
                    self._files.rm_file(f"{self._root}/{name}")

    def _store_errors(self) -> AbstractContextManager[None]:
        return store_errors(self.address)


def _size_and_time(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


class StoreLock:
    """``train.lock`` at an address, which only one process creates; it holds the lock while it rewrites the object.

    A lock that did not change for ``LEASE`` seconds is taken over: its process was killed.
    """

    def __init__(self, address: str) -> None:
        self._address, self._owner = address, f"{platform.node()}, process {os.getpid()}, {uuid.uuid4().hex[:8]}"
        self._files, root = _opened(address)
        self._path = f"{root}/train.lock"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises AddressIsBusy while another process trains at the address."""
        seen, since = None, 0.0
        while not self._create():
            found = self._read()
            if seen and found and found != seen:
                raise AddressIsBusy(f"--workdir: another process trains in {self._address} ({_holder(found)})")
            if found != seen:
                seen, since = found, time.monotonic()
            elif time.monotonic() - since > LEASE:
                self._remove()
            time.sleep(LEASE / 30)
        try:
            with in_background(self._keep, "lock"):
                yield
        finally:
            self.release()

    def release(self) -> None:
        """Removes the lock, unless another process took it over."""
        with suppress(StoreError):
            self.require_held()
            self._remove()

    def require_held(self) -> None:
        """Raises LockLost where another process took the lock over."""
        found = self._read()
        if found and not found.startswith(self._owner.encode()):
            raise LockLost(f"{self._address}: another process trains there now ({_holder(found)})")

    def _keep(self, over: threading.Event) -> None:
        for beat in itertools.count(1):
            if over.wait(LEASE / 3):
                return
            try:
                self.require_held()
                with store_errors(self._address):
                    self._files.pipe_file(self._path, f"{self._owner}, {beat}".encode())
            except LockLost as error:
                sys.stderr.write(f"{error}; this run ends\n")
                # The run ends after this update, as at Ctrl-C. Another thread would not wake the main one.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return
            except StoreError:
                # The store is asked again.
                continue

    def _create(self) -> bool:
        with store_errors(self._address):
            try:
                self._files.pipe_file(self._path, self._owner.encode(), mode="create")
            except FileExistsError:
                # The answer to the first attempt may have been lost.
                return self._read() == self._owner.encode()
        return True

    def _read(self) -> bytes | None:
        with store_errors(self._address):
            try:
                return self._files.cat_file(self._path)
            except FileNotFoundError:
                return None

    def _remove(self) -> None:
        with store_errors(self._address), suppress(FileNotFoundError):
            self._files.rm_file(self._path)


def _holder(lock: bytes) -> str:
    """Host and process."""
    return ", ".join(lock.decode().split(", ")[:2])


class SharedFolder:
    """Files below ``address``, an absolute path or an address of an object store, for jobs on several machines.

    Raises ConfigError, which names ``key``, at an address that the user did not name, and StoreError where a store or disk
    refuses.
    """

    def __init__(self, address: str, key: str) -> None:
        if is_unasked(address):
            address = without_mark(address)
            raise ConfigError(
                f"{key}: {address} comes from the settings of a run; name it yourself: --config.{key}={address}"
            )
        self._is_local = not is_address(address)
        self.address = absolute_path(address, key) if self._is_local else address.rstrip("/")
        if self._is_local:
            import fsspec

            self._files, self._root = fsspec.filesystem("file", auto_mkdir=True), self.address
        else:
            self._files, self._root = _opened(self.address)

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes of the files in a folder, by name, sorted."""
        where = f"{self._root}/{folder}"
        with store_errors(self.address):
            self._files.invalidate_cache()
            found = self._files.ls(where, detail=True) if self._files.isdir(where) else []
        return {
            Path(each["name"]).name: each["size"]
            for each in sorted(found, key=itemgetter("name"))
            if each["type"] == "file"
        }

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder."""
        return list(self.sizes(folder))

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""
        with store_errors(self.address):
            self._files.invalidate_cache()
            path = f"{self._root}/{name}"
            return self._files.cat_file(path) if self._files.isfile(path) else None

    def write(self, name: str, content: str) -> None:
        """Writes or replaces a file atomically."""
        with store_errors(self.address):
            if self._is_local:
                write_whole(Path(self._root) / name, content)
            else:
                self._files.pipe_file(f"{self._root}/{name}", content.encode())

    def put(self, folder: Path, name: str = "") -> None:
        """Copies the files in a local folder to the folder ``name``, by default to the address itself, each atomically."""
        here = sorted(file for file in folder.iterdir() if file.is_file())
        below = f"{self._root}/{name}".rstrip("/")
        there = [f"{below}/{file.name}" for file in here]
        with store_errors(self.address):
            if not self._is_local:
                self._files.put([str(file) for file in here], there)
                return
            for file, path in zip(here, there, strict=True):
                with appearing_file(Path(path)) as copy, file.open("rb") as content:
                    shutil.copyfileobj(content, copy)

    def get(self, name: str, files: Iterable[str], folder: Path) -> None:
        """Copies some files of the folder ``name`` to a local folder."""
        folder.mkdir(parents=True, exist_ok=True)
        files = list(files)
        with store_errors(self.address):
            self._files.get([f"{self._root}/{name}/{file}" for file in files], [str(folder / file) for file in files])

    def ranges(self, names: Sequence[str], begins: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        """The bytes ``begin:end`` of each file, requested together."""
        paths = [f"{self._root}/{name}" for name in names]
        with store_errors(self.address):
            found: list[bytes] = self._files.cat_ranges(paths, begins, ends, on_error="raise")
            return found


@contextmanager
def store_errors(address: str) -> Iterator[None]:
    """Raises StoreError for every exception of a library."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = first_line(error) or type(error).__name__
        if "storage.buckets.get" in str(error):
            reason = "Orbax needs the permission storage.buckets.get (roles/storage.legacyBucketReader)"
        raise StoreError(f"{address}: {reason}") from error


def fetch_arrays(folder: Path, items: Iterable[str]) -> None:
    """Downloads the arrays of some items of a checkpoint of a run in a store; call it before they are read."""
    for path, stored in _OPEN.items():
        if folder.is_relative_to(path):
            stored.fetch(folder, items)


def refresh_copy(folder: Path) -> None:
    """Exchanges files with the store, if this is the folder of a copy of a run; where that fails, prints why."""
    for path, stored in _OPEN.items():
        if folder.is_relative_to(path):
            try:
                stored.refresh()
            except (StoreError, OSError) as error:
                sys.stderr.write(f"{error}; the store is asked again\n")


def address_of_checkpoints(folder: Path) -> str | None:
    """The address of a folder of checkpoints that Orbax writes and reads in the store itself, else None."""
    for path, stored in _OPEN.items():
        if stored.is_direct and folder.is_relative_to(path):
            return f"{stored.address}/{folder.relative_to(path).as_posix()}"
    return None


def before_commit(checkpoint: str) -> None:
    """Uploads the logs of the run before one of its checkpoints counts as complete, so that no log is behind a checkpoint."""
    for stored in _OPEN.values():
        if checkpoint.startswith(f"{stored.address}/"):
            stored.upload()


def after_commit(checkpoint: str) -> None:
    """Makes the folder of a complete checkpoint in the local copy, so that ``outcome.json`` can name it."""
    for stored in _OPEN.values():
        if checkpoint.startswith(f"{stored.address}/"):
            (stored.path / checkpoint.removeprefix(f"{stored.address}/")).mkdir(parents=True, exist_ok=True)


def lock_problem(folder: Path) -> str:
    """Why nothing may be written to the store of a folder; empty while this process holds its lock, or needs none."""
    for path, stored in _OPEN.items():
        if stored.lock and folder.is_relative_to(path):
            try:
                stored.lock.require_held()
            except StoreError as error:
                return str(error)
    return ""


def move_objects(source: str, target: str) -> None:
    """Moves all objects below ``source`` to ``target``, since epath cannot rename folders of a store."""
    files, before = _opened(source)
    after = _opened(target)[1]
    with store_errors(source):
        names = files.find(before)
        for name in names:
            files.cp_file(name, f"{after}{name.removeprefix(before)}")
        # Without MARKER the rest counts for nothing, if this is cut short.
        for name in sorted(names, key=lambda name: not name.endswith(MARKER)):
            files.rm_file(name)


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


@cache
def _folder_of_this_process() -> Path:
    folder = tempfile.mkdtemp(dir=scratch_folder())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def local_run(text: str, *, is_fresh: bool = False) -> Path:
    """The folder of a run to read: of one in a store a copy, with ``is_fresh`` a new one.

    Raises DataError where the address comes from the settings of another run, not from the user.
    """
    if is_unasked(text):
        address = without_mark(text)
        raise DataError(
            f"init.run: {address} comes from the settings of a run; to open it, name it yourself: --init_from={address}"
        )
    if is_fresh:
        # The earlier copy stays on disk: a model may still read from it.
        copy_to_read.cache_clear()
        _folder_of_this_process.cache_clear()
    return copy_to_read(text).path if is_address(text) else Path(text).expanduser()


@contextmanager
def folder_to_train(workdir: str, *, is_distributed: bool = False) -> Iterator[Path]:
    """The folder of a run; of one in a store a local copy, uploaded every ``PAUSE`` seconds and at the end, then removed.

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
                _upload_at_end(stored)
            shutil.rmtree(folder, ignore_errors=True)
        if is_distributed:
            distributed.wait_for_all("uploads")


def leave_stores() -> None:
    """Uploads the runs that this process trains and releases their locks, before it ends without an orderly exit."""
    for stored in list(_OPEN.values()):
        if stored.lock:
            try:
                _upload_at_end(stored)
            except (StoreError, OSError) as error:
                sys.stderr.write(f"{error}\n")
            stored.lock.release()


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
                sys.stderr.write(f"{error}; the run continues, and is uploaded when the store answers\n")
            is_failing = True


def _upload_at_end(stored: StoredFolder) -> None:
    """Uploads a run, again and again for two minutes; what is not uploaded then stays in a folder that the error names."""
    problem: StoreError | OSError | None = None
    try:
        for pause in (*PAUSES_AT_END, 0):
            try:
                return stored.upload()
            except (StoreError, OSError) as error:
                problem = error
                if isinstance(error, LockLost):
                    break
            time.sleep(pause)
    except BaseException:
        sys.stderr.write(f"not everything is uploaded: it is in {stored.keep()}\n")
        raise
    raise StoreError(f"{problem}; not everything is uploaded: it is in {stored.keep()}")


def with_addresses(text: str) -> str:
    """A message in which local copies are replaced by their addresses."""
    for folder, stored in _OPEN.items():
        text = re.sub(rf"{re.escape(str(folder))}(?![\w-])", stored.address, text)
    return text


def scratch_folder() -> Path:
    """A folder on a disk of this host."""
    folder = Path(os.environ.get(SCRATCH) or "~/.cache/transformer_jax/scratch").expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _opened(address: str) -> tuple[Any, str]:
    """The file system of an address, and its path there."""
    scheme, _, rest = address.partition("://")
    if not rest.strip("/") or rest.startswith("/") or "::" in address or scheme in ("file", "local"):
        raise ConfigError(f"{address}: not the address of an object store; write s3://BUCKET/FOLDER")
    try:
        import fsspec

        # Listings of other processes' objects must be new, also for epath.
        for store in ("s3", "gs", "gcs"):
            fsspec.config.conf.setdefault(store, {}).setdefault("use_listings_cache", False)
        files, root = fsspec.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{address}: {error}; install the extra object-stores, or s3fs and gcsfs") from None
    return files, str(root).rstrip("/")
