"""Checkpoints that Orbax writes and reads at ``s3://`` and ``gs://``: arrays by TensorStore, other files by epath."""

import asyncio
import hashlib
import json
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import orbax.checkpoint as ocp

from transformer_jax.checkpoints.folder import CheckpointFolder
from transformer_jax.checkpoints.save_failure import SaveFailed
from transformer_jax.errors import ConfigError, StoreError, first_line
from transformer_jax.files.file_digests import Part
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.store_path import StorePath, is_outage, kvstore, store_errors
from transformer_jax.private_modules import fit_orbax_to_stores
from transformer_jax.run_directory.stored_checkpoints import COMMIT, IN_PROGRESS, MARKER, is_step, unused_name
from transformer_jax.runtime.distributed import STATUS_TO_RESTART, all_agree, is_first
from transformer_jax.runtime.store_lock import LockLost, StoreLock

# Digests of the objects of a checkpoint, which the store computed.
OBJECTS = "object_digests.json"
# The names that s3fs and gcsfs give these digests; S3's depends on upload and encryption too.
ETAG = "ETag"
_DIGESTS = ("size", ETAG, "crc32c", "md5Hash")


class CommittedFolder(ocp.path.atomicity.CommitFileTemporaryPath):
    """A checkpoint in a store, which cannot rename a folder: Orbax takes it for complete once it has ``COMMIT``.

    Readers, and a run that resumes, ignore a checkpoint that has ``IN_PROGRESS``.
    """

    lock: StoreLock | None = None

    @classmethod
    def from_final(cls, final_path: Any, **options: Any) -> Any:
        # Without the store of metadata, MARKER is not written before IN_PROGRESS.
        return super().from_final(final_path, **options | {"checkpoint_metadata_store": None})

    async def create(self) -> Any:
        """Called by process 0 before the others write, for the checkpoint and for each item."""
        folder = await super().create()
        if is_step(folder.name):
            await asyncio.to_thread((folder / IN_PROGRESS).write_text, "")
        return folder

    async def finalize(self) -> None:
        """Called by process 0 when all processes have written, for the checkpoint and for each item."""
        folder = self.get_final()
        if not is_step(folder.name):
            await super().finalize()
            return
        if self.lock:
            await asyncio.to_thread(self.lock.require_held)
        await asyncio.to_thread(write_object_digests, folder)
        await super().finalize()
        await asyncio.to_thread((folder / COMMIT).write_text, str(time.time()))
        await asyncio.to_thread((folder / IN_PROGRESS).unlink, True)


class BucketFolder(CheckpointFolder):
    """The checkpoints of a run at ``s3://`` or ``gs://``, with the digests that the store computes.

    ``lock``: of process 0 of a run that trains.
    """

    arrays = ocp.StandardCheckpointHandler

    def __init__(self, path: StorePath, lock: StoreLock | None = None) -> None:
        try:
            fit_orbax_to_stores(kvstore)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{path}: Orbax has no {error.name}; install the extra object-stores, or orbax-checkpoint>=0.12.8"
            ) from None
        super().__init__(path)
        self._lock = lock
        self.temporary_path = type("CommittedFolder", (CommittedFolder,), {"lock": lock})

    def opening(self) -> AbstractContextManager[None]:
        return store_errors(self.path)

    def listed(self, step: int | None = None) -> AbstractContextManager[None]:
        path: StorePath = self.path if step is None else self.path / str(step)
        return path.listed()

    def prepare(self) -> list[str]:
        """Removes unfinished checkpoints."""
        if is_first():
            remove_uncommitted(self.path)
        return []

    def require_lock(self) -> None:
        problem = ""
        try:
            if self._lock:
                self._lock.require_held()
        except StoreError as error:
            problem = str(error)
        if not all_agree(not problem, "lock of the run"):
            raise SaveFailed(problem or f"{self.path}: process 0 lost the lock of the run")

    def release(self) -> None:
        if self._lock:
            self._lock.release()

    def status_of(self, error: BaseException) -> int:
        return STATUS_TO_RESTART if is_outage(error) else 1

    def problem_of(self, error: BaseException) -> str:
        if isinstance(error, LockLost):
            return str(error)
        if not is_outage(error):
            return f"{self.path}: cannot be written ({first_line(error)}); when the store allows it, run the same command"
        return f"{self.path}: cannot be written ({first_line(error)}); when the store answers, run the same command"

    def changed(self, step: int, names: list[str], part: Part) -> list[str]:
        """Of several processes that check parts, the first lists the objects: it is one request for a thousand."""
        return [] if part.number else changed_objects(self.path / str(step), names)

    def has_digests(self, step: int, names: list[str]) -> bool:
        return has_checksums(self.path / str(step), names)

    def set_aside(self, step: int) -> Any:
        """Moves a checkpoint, object by object, since a store cannot rename a folder."""
        source, target = self.path / str(step), unused_name(self.path, step)
        names = list(source.objects())
        for name in names:
            (source / name).copy_to(target / name)
        # Without MARKER the rest counts for nothing, if this is cut short.
        for name in sorted(names, key=lambda name: name != MARKER):
            (source / name).unlink()
        return target


def remove_uncommitted(checkpoints: StorePath) -> None:
    """Removes checkpoints whose save or deletion a kill cut short; marks those that an earlier version uploaded for Orbax."""
    objects = checkpoints.objects()
    for name in sorted({name.partition("/")[0] for name in objects}):
        if not is_step(name):
            continue
        folder = checkpoints / name
        is_whole = f"{name}/{MARKER}" in objects and f"{name}/{IN_PROGRESS}" not in objects
        if is_whole and f"{name}/{COMMIT}" not in objects:
            # Only a checkpoint that was complete on a disk has this time; Orbax may delete COMMIT of others before MARKER.
            is_whole = bool(parse_json((folder / MARKER).read_text()).get("commit_timestamp_nsecs"))
            if is_whole:
                (folder / COMMIT).write_text("")
        if not is_whole:
            folder.rmtree()


def write_object_digests(checkpoint: StorePath) -> None:
    """Writes ``OBJECTS`` into a checkpoint: the size of each of its objects, and checksums from the listing."""
    content = {"address": str(checkpoint), "objects": _digests(checkpoint)}
    (checkpoint / OBJECTS).write_text(json.dumps(content))


def changed_objects(checkpoint: StorePath, prefixes: Iterable[str]) -> list[str]:
    """Objects of a checkpoint that were removed or changed since ``OBJECTS``; empty where it has none.

    ``prefixes``: files or folders to check.
    """
    return sorted(name for name, compared in _compared(checkpoint, prefixes).items() if not all(compared.values()))


def has_checksums(checkpoint: StorePath, prefixes: Iterable[str]) -> bool:
    """Whether ``changed_objects`` compares a checksum of each object below ``prefixes``."""
    compared = _compared(checkpoint, prefixes).values()
    return bool(compared) and all(each.keys() - {"size"} for each in compared)


def _compared(checkpoint: StorePath, prefixes: Iterable[str]) -> dict[str, dict[str, bool]]:
    """Whether the size, and the checksums that can be compared, are as recorded, by object."""
    found = _digests(checkpoint)
    if OBJECTS not in found:
        return {}
    content = (checkpoint / OBJECTS).read_bytes()
    try:
        described = parse_json(content)
        recorded = {name: dict(digests) for name, digests in described["objects"].items()}
        # ETags depend on encryption; elsewhere only those are compared that are the MD5 of the content, in both buckets.
        is_here = described["address"] == str(checkpoint)
        has_md5 = _is_md5(recorded.get(IN_PROGRESS, {}), b"") and _is_md5(found[OBJECTS], content)
    except (ValueError, KeyError, TypeError, AttributeError):
        return {OBJECTS: {"size": False}}

    def compared(name: str) -> dict[str, bool]:
        before, now = recorded[name], found.get(name, {})
        keys = before.keys() & now.keys()
        # That of an upload in parts has a hyphen.
        if ETAG in keys and not is_here and (not has_md5 or "-" in f"{before[ETAG]}{now[ETAG]}"):
            keys.remove(ETAG)
        return {"size": "size" in keys} | {key: before[key] == now[key] for key in keys}

    wanted = tuple(f"{prefix}/" for prefix in prefixes)
    return {name: compared(name) for name in recorded if f"{name}/".startswith(wanted)}


def _is_md5(digests: dict[str, Any], content: bytes) -> bool:
    return str(digests.get(ETAG)).strip('"') == hashlib.md5(content, usedforsecurity=False).hexdigest()


def _digests(checkpoint: StorePath) -> dict[str, dict[str, Any]]:
    found = checkpoint.objects().items()
    return {name: {key: info[key] for key in _DIGESTS if key in info} for name, info in found}
