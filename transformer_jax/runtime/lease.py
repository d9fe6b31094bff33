"""A lock where the file system has none (some Lustre and NFS mounts, object stores): a file that its holder keeps changing.

Clocks of different hosts are never compared: a lease is stale when another process watched it for ``SECONDS`` and it did not
change. Of two that take over a stale one the last to write has it, and both look again before they begin.
"""

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.json_text import parse_json
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.background import in_background
from transformer_jax.runtime.retries import reason_of

SECONDS = 60.0
BEATS = 6


@runtime_checkable
class LeaseFile(Protocol):
    """Where a lease is written: a file, or an object of a store. All but ``create`` is as for any file."""

    name: str

    def create(self, content: str) -> bool:
        """Writes it unless it is there; whether it did. Of several processes one does."""

    def read(self) -> str:
        """The content; empty where it is not there."""

    def write(self, content: str) -> None:
        """Replaces the content."""

    def remove(self) -> None:
        """Deletes it, if it is there."""


class Lease:
    """A lease that this process took: in ``file`` are its own id, a count of renewals, and ``holder``."""

    def __init__(self, file: LeaseFile, holder: str) -> None:
        self._file, self._holder, self._count = file, holder, 0
        self._id = uuid.uuid4().hex

    def take(self, problem: ConfigError, seconds: float) -> None:
        """Raises ``problem`` where another process renews it within ``seconds``."""
        if self._file.create(self._content()):
            return
        before = self._file.read()
        if self._holder and _holder_in(before) == self._holder:
            self._file.write(self._content())
            return
        sys.stderr.write(f"{self._file.name}: watched for up to {seconds:.0f} s: does its holder still live?\n")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(seconds / BEATS / 4)
            if self._file.read() != before:
                raise problem
        self._file.write(self._content())
        time.sleep(seconds / BEATS)
        if not self.is_held():
            raise problem

    def is_held(self) -> bool:
        """Whether it is still this process's, asked now; where it is gone, another process may have held it since."""
        return _id_in(self._file.read()) == self._id

    def renew(self) -> bool:
        """Whether it is still this process's; others see that this process lives."""
        self._count += 1
        if not self.is_held():
            return False
        self._file.write(self._content())
        return True

    def release(self) -> None:
        """Deletes it, if it is this process's."""
        if self.is_held():
            self._file.remove()

    def _content(self) -> str:
        return json.dumps([self._id, self._count, self._holder])


def end_this_process(problem: str) -> None:
    """Asks this process to save and end."""
    # Imported here because it imports JAX, which a command that only looks at a run does without.
    from transformer_jax.runtime.distributed import say

    say(f"{problem}; this process saves and ends", sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def leased(path: Path, problem: ConfigError, seconds: float = SECONDS) -> Iterator[None]:
    """Raises ``problem`` while another process holds the lease; holds it until the end, and asks this process to stop if it
    is lost, or cannot be renewed for half of ``seconds``, while no other can take it yet.
    """
    with held(_LocalFile(path), "", problem, seconds, seconds / 2):
        yield


@contextmanager
def held(
    file: LeaseFile,
    holder: str,
    problem: ConfigError,
    seconds: float,
    patience: float,
    end: Callable[[str], None] = end_this_process,
) -> Iterator[Lease]:
    """As ``leased``; calls ``end`` where the lease is lost, or cannot be renewed for ``patience`` seconds.

    ``holder``: a name that no two processes that live have; one that a killed process of that name left is taken without
    watching it. Empty for none.
    """
    lease = Lease(file, holder)
    lease.take(problem, seconds)

    def beat(over: threading.Event) -> None:
        renewed, pause = time.monotonic(), seconds / BEATS
        while not over.wait(pause):
            try:
                if not lease.renew():
                    end(f"{file.name}: another process took the lease, or it was deleted")
                    return
                renewed, pause = time.monotonic(), seconds / BEATS
            except (OSError, DataError) as error:
                # A full disk, a mount or a store that does not answer.
                if time.monotonic() - renewed > patience:
                    end(f"{file.name}: the lease cannot be renewed ({reason_of(error)})")
                    return
                pause = seconds / BEATS / 4

    try:
        with in_background(beat, "lease"):
            yield lease
    finally:
        with suppress(OSError, DataError):
            lease.release()


class _LocalFile:
    """A lease in a folder that hosts share."""

    def __init__(self, path: Path) -> None:
        self._path, self.name = path, str(path)

    def create(self, content: str) -> bool:
        try:
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def read(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def write(self, content: str) -> None:
        write_whole(self._path, content)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def _id_in(content: str) -> str:
    return content[2:34] if content.startswith('["') else ""


def _holder_in(content: str) -> str:
    try:
        _, _, holder = parse_json(content)
    except (ValueError, TypeError):
        return ""
    return str(holder)
