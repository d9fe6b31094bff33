"""A run that trains in a local folder and lives in an object store: downloaded first, uploaded as it goes, leased meanwhile."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from transformer_jax.checkpoints.stored_run import LEASE
from transformer_jax.config import ConfigError, DataError
from transformer_jax.runs.local_copy import bring_here
from transformer_jax.runs.run_directory import RunIsBusy, locked
from transformer_jax.runs.uploads import Uploads
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.background import in_background
from transformer_jax.runtime.lease import SECONDS, Lease, end_this_process, held
from transformer_jax.runtime.object_stores import Store, StoreError, mirror_folder, name_mirror, notify
from transformer_jax.runtime.retries import is_transient, reason_of

PAUSE = 10.0
"""Seconds between two looks at what the run wrote."""

PATIENCE_AT_END = 600.0
LOCK = "mirror.lock"
_START_OF_MACHINE = Path("/proc/sys/kernel/random/boot_id")
# Of messages about a store that does not answer.
_SECONDS_APART = 600.0


class UploadFailed(RuntimeError):
    """The store does not have all of the run. The message says where it is, and how it gets there."""


class _LeaseLost(StoreError):
    """Another process trains in the store: nothing more is written to it."""


class _StoredLease:
    """A lease in an object store; what is renewed often is tried for a moment."""

    def __init__(self, address: str) -> None:
        self._store, self.name = Store(address), f"{address}/{LEASE}"

    def create(self, content: str) -> bool:
        # The first operation waits for a store that is away when the command starts.
        is_created = self._store.create(LEASE, content.encode())
        self._store.patience = 5.0
        return is_created

    def read(self) -> str:
        return self._store.read(LEASE).decode(errors="replace")

    def write(self, content: str) -> None:
        self._store.write(LEASE, content.encode())

    def remove(self) -> None:
        self._store.remove(LEASE)


@contextmanager
def training_mirror(address: str, pause: float = PAUSE, lease_seconds: float = SECONDS) -> Iterator[Path]:
    """The local folder in which the run at ``address`` trains; at the end everything is in the store.

    A run that another machine has resumed since is downloaded again; newer local checkpoints and results are moved to a folder
    beside it. Otherwise the local copy is used, with what was not uploaded yet. Raises RunIsBusy while another process trains
    there, ConfigError where that cannot be found out, StoreError, and UploadFailed at the end.
    """
    store = Store(address)
    base = mirror_folder(store.address, "train")
    base.mkdir(parents=True, exist_ok=True)
    busy = RunIsBusy(f"--workdir: another process is training in {store.address}; use another address", base)
    folder = base / "run"
    is_trained = threading.Event()

    def end(problem: str) -> None:
        # Afterwards the next upload says so.
        if not is_trained.is_set():
            end_this_process(problem)

    with locked(base / LOCK, busy), _leased(store, _holder(base), busy, lease_seconds, end) as lease:
        writer = bring_here(store, base)
        uploads = Uploads(store, base, writer, lambda: _require_held(lease, store))
        # An operation that is tried for longer than a lease may be another process's by then.
        store.patience = lease_seconds / 2
        notify(f"{store.address}: the local copy is {folder}")
        name_mirror(folder, store.address)
        with _in_the_background(uploads, store.address, pause):
            yield folder
        is_trained.set()
        _finish(uploads, store, folder)


@contextmanager
def _leased(store: Store, holder: str, busy: RunIsBusy, seconds: float, end: Callable[[str], None]) -> Iterator[Lease]:
    """The lease; a store that is away for a while ends nothing, since nothing can be written to it then either."""
    with ExitStack() as stack:
        try:
            lease = stack.enter_context(held(_StoredLease(store.address), holder, busy, seconds, float("inf"), end))
        except StoreError as error:
            raise ConfigError(f"--workdir: cannot lock here: {error}") from None
        yield lease


def _require_held(lease: Lease, store: Store) -> None:
    if not lease.is_held():
        raise _LeaseLost(
            f"{store.address}: another process took the lease, or it was deleted; nothing more is uploaded from here"
        )


def _holder(base: Path) -> str:
    """The name of this mirror since the machine was started; a copy of it, here or elsewhere, has another name."""
    file = base / "mirror.id"
    if not file.is_file():
        write_whole(file, uuid.uuid4().hex)
    start = _START_OF_MACHINE.read_text().strip() if _START_OF_MACHINE.is_file() else f"{uuid.getnode():x}"
    return f"{file.read_text(encoding='utf-8')} {start} {(base / LOCK).stat().st_ino}"


@contextmanager
def _in_the_background(uploads: Uploads, address: str, pause: float) -> Iterator[None]:
    """Uploads until the end of the block; after an error in it once more."""

    def work(over: threading.Event) -> None:
        failing_since, said = 0.0, float("-inf")
        while not over.wait(pause):
            try:
                uploads.send()
            # Whatever it is, the next pass may succeed, and the last one raises it.
            except Exception as error:
                now = time.monotonic()
                failing_since = failing_since or now
                if now - said > _SECONDS_APART:
                    said = now
                    notify(f"{address}: {reason_of(error)}; the run goes on, and is uploaded when the store answers")
                continue
            if failing_since:
                notify(f"{address}: answers again, and has everything up to now")
                failing_since, said = 0.0, float("-inf")

    try:
        with in_background(work, "uploads"):
            yield
    except BaseException:
        try:
            uploads.send(is_last=True)
        except (DataError, OSError) as error:
            notify(str(error))
        raise


def _finish(uploads: Uploads, store: Store, folder: Path) -> None:
    deadline, pause = time.monotonic() + PATIENCE_AT_END, 1.0
    while True:
        try:
            is_sent = uploads.send(is_last=True)
            break
        except (DataError, OSError) as error:
            is_over = isinstance(error, _LeaseLost) or not is_transient(error.__cause__ or error)
            if is_over or time.monotonic() > deadline:
                remedy = "" if isinstance(error, _LeaseLost) else ", and the same command on this machine uploads it"
                raise UploadFailed(f"{error}. Not everything is uploaded; it is in {folder}{remedy}") from None
        time.sleep(pause)
        pause = min(2 * pause, 30.0)
    if is_sent and (left := uploads.left_out()):
        raise UploadFailed(f"{folder}: not uploaded, since a store cannot have such names: {', '.join(left)[:300]}")
    notify(f"{store.address}: everything is uploaded" if is_sent else f"{folder}: no run in it, nothing is uploaded")
