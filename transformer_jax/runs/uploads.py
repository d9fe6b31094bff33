"""Uploads of a run while it trains: logs as they grow, and each checkpoint once, its commit marker last."""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from transformer_jax.checkpoints.format import is_step, step_names, were_set_aside
from transformer_jax.checkpoints.stored_run import (
    WRITER,
    described_files,
    is_result,
    own_checkpoints,
    whole_checkpoints,
)
from transformer_jax.config import DataError
from transformer_jax.runtime.described_files import load_described, save_described
from transformer_jax.runtime.file_digests import DIGESTS
from transformer_jax.runtime.object_stores import Store, for_each, is_safe
from transformer_jax.runtime.retries import reason_of

SENT = "sent.json"
_LOG = "metrics.jsonl"
BYTES_PER_SECOND = 1e5
"""Of a log that grows: a store has no appending, so the longer it is, the more rarely it is sent."""


class Uploads:
    """Brings an object store to the state of the run directory ``base/run``, pass by pass.

    ``base/outgoing`` has links to checkpoints, which the run may delete meanwhile; ``base/sent.json`` describes the files that
    the store has, so that the next start sends only those that changed. ``writer`` is the content of ``writer.json``, the first
    upload. ``require_held`` raises once another process has the run; it is asked before every operation that writes.
    """

    def __init__(self, store: Store, base: Path, writer: bytes, require_held: Callable[[], None]) -> None:
        self._store, self._folder, self._outgoing, self._record = store, base / "run", base / "outgoing", base / SENT
        self._require_held, self._writer, self._is_begun = require_held, writer, False
        listed = store.listing()
        self._sent = {name: each for name, each in load_described(self._record).items() if name in listed}
        if not self._sent:
            self._set_results_aside(listed)
        whole = whole_checkpoints(listed)
        self._due: dict[str, float] = {}
        # By checkpoint the names of its objects, and the content of its marker, empty where it has none.
        self._names = own_checkpoints(listed)
        self._markers = {name: store.read(f"{name}/{DIGESTS}") if name in whole else b"" for name in self._names}

    def send(self, *, is_last: bool = False) -> bool:
        """One pass, after which, if it is the last, the store has everything; False where there is no run to send.

        Logs go before checkpoints, so that a log in the store is never behind one; deletions come last. Raises StoreError; the
        next pass then does what is left.
        """
        if not (self._folder / "config.json").is_file():
            # Nothing yet; or somebody removed the folder, which says nothing about the store.
            return False
        if not self._is_begun:
            self._write(WRITER, self._writer)
            self._is_begun = True
        linked, before = self._link_new_checkpoints(), dict(self._sent)
        try:
            self._send_described(is_whole=is_last or bool(linked))
        finally:
            if self._sent != before:
                save_described(self._record, self._sent)
        for checkpoint in linked:
            self._send_checkpoint(checkpoint)
        self._remove_old()
        return True

    def _set_results_aside(self, listed: Iterable[str]) -> None:
        """Where nothing tells what was sent, results here and there may differ: neither is to replace the other."""
        here = described_files(self._folder)
        for name in [name for name in here if name in listed and is_result(name)]:
            file = self._folder / name
            if self._store.read(name) == file.read_bytes():
                self._sent[name] = here[name]
            else:
                file.rename(file.with_name(f"{file.name}.{uuid.uuid4().hex[:6]}"))

    def left_out(self) -> list[str]:
        """Files that a store cannot have, by their names."""
        names = (file.relative_to(self._folder).as_posix() for file in self._folder.rglob("*") if file.is_file())
        return [name for name in names if not is_safe(name)]

    def _link_new_checkpoints(self) -> list[str]:
        """Links the checkpoints that the store does not have, newest first: what is newest counts when time is short."""
        shutil.rmtree(self._outgoing, ignore_errors=True)
        linked = []
        for checkpoint in reversed(self._local_checkpoints()):
            try:
                if self._markers.get(checkpoint) == (self._folder / checkpoint / DIGESTS).read_bytes():
                    continue
                shutil.copytree(self._folder / checkpoint, self._outgoing / checkpoint, copy_function=_link)
                linked.append(checkpoint)
            except (FileNotFoundError, shutil.Error) as error:
                shutil.rmtree(self._outgoing / checkpoint, ignore_errors=True)
                # Otherwise the run deleted it just now.
                if (self._folder / checkpoint).exists():
                    raise DataError(f"{self._folder / checkpoint} cannot be uploaded: {_first_reason(error)}") from None
        return linked

    def _local_checkpoints(self) -> list[str]:
        return [f"checkpoints/{name}" for name in step_names(self._folder / "checkpoints")]

    def _send_described(self, *, is_whole: bool) -> None:
        found, is_behind = described_files(self._folder), self._is_behind()
        for name, described in found.items():
            if name == _LOG and is_behind:
                # The newest checkpoint was damaged here; that in the store is sound, and the log there goes up to it.
                continue
            is_due = is_whole or time.monotonic() >= self._due.get(name, 0.0)
            if is_due and self._sent.get(name) != described:
                try:
                    content = (self._folder / name).read_bytes()
                except FileNotFoundError:
                    continue
                self._write(name, content)
                self._sent[name] = described
                self._due[name] = time.monotonic() + len(content) / BYTES_PER_SECOND
        for name in [name for name in self._sent if name not in found]:
            self._remove(name)
            del self._sent[name]

    def _send_checkpoint(self, checkpoint: str) -> None:
        folder, marker = self._outgoing / checkpoint, f"{checkpoint}/{DIGESTS}"
        files = {f"{checkpoint}/{file.relative_to(folder).as_posix()}": file for file in folder.rglob("*")}
        files = {name: file for name, file in files.items() if file.is_file() and is_safe(name)}
        content = files.pop(marker).read_bytes()
        self._remove_marker(checkpoint)
        stored = self._names.setdefault(checkpoint, set())
        stale = stored - set(files)
        stored |= set(files)
        for_each(lambda name: self._upload(files[name], name), sorted(files))
        for_each(self._remove, sorted(stale))
        self._write(marker, content)
        self._names[checkpoint], self._markers[checkpoint] = {*files, marker}, content
        shutil.rmtree(folder, ignore_errors=True)

    def _remove_marker(self, checkpoint: str) -> None:
        if self._markers.get(checkpoint):
            self._remove(f"{checkpoint}/{DIGESTS}")
            self._markers[checkpoint] = b""

    def _remove_old(self) -> None:
        """Deletes what the run no longer keeps, unless nothing would be left that one can resume from."""
        # Of one that was damaged here the store has a sound copy.
        kept = {*self._local_checkpoints(), *(f"checkpoints/{step}" for step in self._damaged_steps())}
        if not any(self._markers.get(checkpoint) for checkpoint in kept):
            return
        for checkpoint in [checkpoint for checkpoint in self._names if checkpoint not in kept]:
            self._remove_marker(checkpoint)
            for_each(self._remove, sorted(self._names.pop(checkpoint)))
            self._markers.pop(checkpoint, None)

    def _is_behind(self) -> bool:
        stored = [step for step in self._damaged_steps() if self._markers.get(f"checkpoints/{step}")]
        here = [int(name) for name in step_names(self._folder / "checkpoints")]
        return max(stored, default=-1) > max(here, default=-1)

    def _damaged_steps(self) -> list[int]:
        steps = (folder.name.split("-")[1] for folder in were_set_aside(self._folder))
        return [int(step) for step in steps if is_step(step)]

    def _write(self, name: str, content: bytes) -> None:
        self._require_held()
        self._store.write(name, content)

    def _upload(self, file: Path, name: str) -> None:
        self._require_held()
        self._store.upload(file, name)

    def _remove(self, name: str) -> None:
        self._require_held()
        self._store.remove(name)


def _first_reason(error: OSError) -> str:
    """Of several files that could not be copied the first."""
    several = error.args[0] if isinstance(error, shutil.Error) else None
    return str(several[0][-1]) if several else reason_of(error)


def _link(source: str, target: str) -> None:
    """A hard link, where the disk has them: a checkpoint is never changed once it has its name."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
