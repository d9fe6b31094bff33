"""The lock of a run in an object store: only one process trains at an address."""

import itertools
import os
import platform
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from transformer_jax.errors import StoreError, complain
from transformer_jax.files.atomic_files import RUN_LOCK
from transformer_jax.files.store_path import StorePath
from transformer_jax.runtime.background import in_background

# Seconds after which a trainer that no longer renews its lock of an address counts as dead.
LEASE = 30.0


class LockLost(StoreError):
    """Another process trains at the address: it took this process for dead."""


class StoreLock:
    """``train.lock`` at an address, rewritten while held, taken over after ``LEASE`` seconds."""

    def __init__(self, run: StorePath) -> None:
        self._run, self._object = run, run / RUN_LOCK
        self._owner = f"{platform.node()}, process {os.getpid()}, {uuid.uuid4().hex[:8]}"

    @contextmanager
    def held(self, busy: Callable[[str], Exception]) -> Iterator[None]:
        """Hold the lock, or raise ``busy(HOST AND PROCESS)`` while another process trains there."""
        seen, since = None, 0.0
        while not self._create():
            content = self._read()
            if seen and content and content != seen:
                raise busy(_holder(content))
            if content == b"":
                # The lock of a run on a disk, which was copied here.
                self._object.unlink()
                continue
            if content != seen:
                if content:
                    complain(f"{self._run}: waits up to {LEASE * 7 / 6:.0f} s for the lock of {_holder(content)}")
                seen, since = content, time.monotonic()
            elif content and time.monotonic() - since > LEASE:
                self._object.unlink()
                continue
            time.sleep(LEASE / 6)
        try:
            with in_background(self._keep, "lock"):
                yield
        finally:
            self.release()

    def release(self) -> None:
        """Remove the lock, unless another process took it over."""
        with suppress(StoreError):
            self.require_held()
            self._object.unlink()

    def require_held(self) -> None:
        """Raise LockLost when another process took the lock over."""
        content = self._read()
        if content and not content.startswith(self._owner.encode()):
            raise LockLost(str(self._run), f"another process trains there now ({_holder(content)})")

    def _keep(self, over: threading.Event) -> None:
        for beat in itertools.count(1):
            if over.wait(LEASE / 3):
                return
            try:
                self.require_held()
                self._object.write_text(f"{self._owner}, {beat}")
            except LockLost as error:
                complain(f"{error}; this run ends")
                # The run ends after this update, as at Ctrl-C, which wakes the main thread.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return
            except StoreError:
                # The store is asked again.
                continue

    def _create(self) -> bool:
        try:
            self._object.create(self._owner.encode())
        except FileExistsError:
            # The answer to the first attempt may have been lost.
            return self._read() == self._owner.encode()
        return True

    def _read(self) -> bytes | None:
        try:
            return self._object.read_bytes()
        except FileNotFoundError:
            return None


def _holder(lock: bytes) -> str:
    """Return host and process of the holder of a lock."""
    return ", ".join(lock.decode().split(", ")[:2])
