"""Checkpoints at ``s3://`` and ``gs://``: arrays by TensorStore, other files by epath."""

import asyncio
import time
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from transformer_jax.checkpoints.folder import CheckpointFiles, CheckpointFolder
from transformer_jax.checkpoints.save_failure import SaveFailed, failed_in_store
from transformer_jax.errors import ConfigError, StoreError, first_line
from transformer_jax.files.file_digests import WHOLE, Part
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.object_digests import changed, compared_objects, has_checksums, write_object_digests
from transformer_jax.files.store_path import StorePath, is_outage, kvstore, store_errors
from transformer_jax.private_modules import fit_orbax_to_stores
from transformer_jax.run_directory.stored_checkpoints import COMMIT, IN_PROGRESS, MARKER, is_step, unused_name
from transformer_jax.runtime.distributed import all_agree, is_first
from transformer_jax.runtime.store_lock import LockLost, StoreLock


class CommittedFolder(ocp.path.atomicity.CommitFileTemporaryPath):
    """A checkpoint in a store, complete for Orbax once it has ``COMMIT``.

    A store cannot rename a folder. Readers, and a run that resumes, ignore a checkpoint that has
    ``IN_PROGRESS``.
    """

    lock: StoreLock | None = None

    @classmethod
    def from_final(cls, final_path: Any, **options: Any) -> Any:
        if is_step(final_path.name) and is_first():
            final_path = final_path.new()
        # Without the store of metadata, MARKER is not written before IN_PROGRESS.
        return super().from_final(final_path, **options | {"checkpoint_metadata_store": None})

    async def create(self) -> Any:
        """Create the folder of the checkpoint or of an item, on process 0, before others write."""
        folder = await super().create()
        if is_step(folder.name):
            await asyncio.to_thread((folder / IN_PROGRESS).write_text, "")
        return folder

    async def finalize(self) -> None:
        """Finish the checkpoint or an item. Called by process 0 when all processes have written."""
        folder = self.get_final()
        if not is_step(folder.name):
            await super().finalize()
            return
        if self.lock:
            await asyncio.to_thread(self.lock.require_held)
        # TensorStore has written objects too.
        await asyncio.to_thread(write_object_digests, StorePath(str(folder)))
        await asyncio.to_thread((folder / COMMIT).write_text, str(time.time()))
        await asyncio.to_thread((folder / IN_PROGRESS).unlink, True)


class CheckpointObjects(CheckpointFiles):
    """The checkpoints of a run in a store, to read, with the digests that the store computes."""

    def __init__(self, path: StorePath) -> None:
        try:
            fit_orbax_to_stores(kvstore)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                path, f"Orbax has no {error.name}", "install the extra object-stores, or orbax-checkpoint>=0.12.8"
            ) from None
        super().__init__(path)
        self._has_checksums = dict[str, bool]()

    def listed(self, step: int | None = None) -> AbstractContextManager[Any]:
        return (self.path if step is None else self.path / str(step)).listed()

    def changed(self, checkpoint: StorePath, names: list[str], part: Part) -> list[str]:
        """Return the changed objects.

        Only the first process lists them: a request lists a thousand.
        """
        if part.number:
            return []
        compared = compared_objects(checkpoint, names)
        self._has_checksums[checkpoint.name] = has_checksums(compared)
        return changed(compared)

    def has_digests(self, checkpoint: StorePath, names: list[str]) -> bool:
        if checkpoint.name not in self._has_checksums:
            self.changed(checkpoint, names, WHOLE)
        return self._has_checksums[checkpoint.name]


class BucketFolder(CheckpointFolder):
    """The checkpoints of a run in a store, to write; ``lock``: of process 0 of the run."""

    def __init__(self, path: StorePath, lock: StoreLock | None = None) -> None:
        super().__init__(path)
        self._lock = lock
        self.temporary_path = type("CommittedFolder", (CommittedFolder,), {"lock": lock})

    def arrays(self) -> ocp.PyTreeCheckpointHandler:
        """Return a handler with few requests: one transaction an item, no files on shardings."""
        arrays = ocp.type_handlers.ArrayHandler(enable_write_sharding_file=False, array_metadata_store=None)
        handlers = (jax.Array, arrays), (np.ndarray, ocp.type_handlers.NumpyHandler())
        registry = ocp.type_handlers.create_type_handler_registry(*handlers)
        # A limit of the bytes in flight, which other handlers have, excludes transactions.
        one_transaction = ocp.BasePyTreeCheckpointHandler(save_concurrent_bytes=None, type_handler_registry=registry)
        return ocp.PyTreeCheckpointHandler(handler_impl=one_transaction, type_handler_registry=registry)

    def opening(self) -> AbstractContextManager[None]:
        return store_errors(self.path)

    def prepare(self) -> list[str]:
        """Remove unfinished checkpoints."""
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

    def failure(self, error: BaseException) -> SaveFailed:
        if isinstance(error, LockLost):
            return SaveFailed(str(error))
        return failed_in_store(f"{self.path}: cannot be written ({first_line(error)})", is_outage=is_outage(error))

    def set_aside(self, step: int) -> Any:
        """Move a checkpoint, object by object, since a store cannot rename a folder."""
        source, target = self.path / str(step), unused_name(self.path, step)
        names = list(source.objects())
        for name in names:
            (source / name).copy_to(target / name)
        # Without MARKER the rest counts for nothing, if this is cut short.
        for name in sorted(names, key=lambda name: name != MARKER):
            (source / name).unlink()
        return target


def remove_uncommitted(checkpoints: StorePath) -> None:
    """Remove checkpoints whose save or deletion a kill cut short.

    Mark whole checkpoints that an earlier version uploaded from a disk.
    """
    objects = checkpoints.objects()
    for name in sorted({name.partition("/")[0] for name in objects}):
        if not is_step(name):
            continue
        folder = checkpoints / name
        is_whole = f"{name}/{MARKER}" in objects and f"{name}/{IN_PROGRESS}" not in objects
        if is_whole and f"{name}/{COMMIT}" not in objects:
            # Only a checkpoint that was complete on a disk has this time.
            is_whole = bool(parse_json((folder / MARKER).read_text()).get("commit_timestamp_nsecs"))
            if is_whole:
                (folder / COMMIT).write_text("")
        if not is_whole:
            folder.rmtree()
