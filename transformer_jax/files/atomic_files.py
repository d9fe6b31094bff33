"""Atomic writes, file locks, and checks that a path can be written."""

import contextlib
import errno
import fcntl
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from transformer_jax.errors import ConfigError
from transformer_jax.files.paths import absolute_path, in_store

DISK_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
"""Errors of a full disk, a full quota and a file beyond its size limit."""


@contextlib.contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Name ``path`` in the error of a full disk, since the system does not name the disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in DISK_FULL:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def appearing_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces ``path`` atomically when the block ends without an error.

    Makes the folder. A reader opens the old file or the new one, also after a kill. Of several
    processes, also on several hosts, the last one wins. The content is on disk before it has the
    name. A pipe or a device, such as /dev/null, is written to.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with naming_full_disk(path):
            with partial.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def appearing_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder, which replaces an empty ``path`` when the block ends without an error.

    Raises OSError if ``path`` is not empty.
    """
    # "." has no name.
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    partial.mkdir()
    try:
        yield partial
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file, also in an object store, atomically. Text is written as UTF-8."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    if in_store(path):
        path.write_bytes(data)
        return
    with appearing_file(path) as file:
        file.write(data)


def remove_partial(path: Path) -> None:
    """Remove unfinished copies of ``path`` that killed processes left.

    Only for the one process that writes ``path``.
    """
    for left in path.parent.glob(f"{path.name}.{'[0-9a-f]' * 32}.partial"):
        left.unlink(missing_ok=True)


def _lock_file(path: Path) -> IO[str]:
    """Open a file to lock, but no link: an untrusted run directory must not select the file."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "w")


RUN_LOCK = "train.lock"
"""The lock of a run, on a disk or in an object store."""


@contextlib.contextmanager
def locked(path: Path, problem: ConfigError) -> Iterator[None]:
    """Hold a lock on a file. Raises ``problem`` while another process holds it."""
    with _lock_file(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another start, which failed, removed the file after it was opened here.
            if not os.fstat(file.fileno()).st_nlink:
                raise problem
        except BlockingIOError:
            raise problem from None
        except OSError:
            # Some Lustre and NFS mounts.
            sys.stderr.write(f"{path}: this file system has no locks; start no second process that writes here\n")
        yield


@contextlib.contextmanager
def waiting_for_lock(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock on a file, then hold it.

    Without a lock if the file cannot be locked. Removes the file at the end, so that two later
    processes may hold a lock at once.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(_lock_file(path))
            stack.callback(path.unlink, missing_ok=True)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.stderr.write(f"waits for the process that holds {path}\n")
                fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def require_local(path: str | Path, flag: str) -> None:
    """Raise ConfigError, which names ``flag``, for an address of an object store."""
    absolute_path(str(path), flag)


def require_writable_file(file: str | Path, flag: str) -> Path:
    """Return the file. Raises ConfigError, which names ``flag``, if it cannot be written.

    A path in an object store is not checked.
    """
    if not isinstance(file, str) and in_store(file):
        return file
    path = Path(file).expanduser()
    if path.is_fifo():
        return path  # Closing it would end the reader.
    is_new = not path.exists()
    try:
        if is_new and path.is_symlink():
            # Opening it would make the file that it names; the link itself is replaced.
            if os.access(path.parent, os.W_OK):
                return path
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with open(path, "ab"):
            pass
    except OSError as error:
        reason = "is a folder" if path.is_dir() else f"cannot be written: {error.strerror}"
        raise ConfigError(flag, f"{path} {reason}", "give a file in a folder that can be written") from None
    if is_new:
        path.unlink(missing_ok=True)
    return path


def require_writable(folder: str | Path, flag: str) -> Path:
    """Return the folder, and make it if necessary.

    Raises ConfigError (``flag``) if it cannot be written.

    A path in an object store is not checked.
    """
    if not isinstance(folder, str) and in_store(folder):
        return folder
    require_local(folder, flag)
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "is a file" if path.is_file() else f"cannot be made: {error.strerror}"
        raise ConfigError(flag, f"{path} {reason}", "give a folder that can be written") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(flag, f"{path} cannot be written", "give a folder that can")
    return path
