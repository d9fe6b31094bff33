"""Checkpoints that Orbax writes and reads at ``s3://`` and ``gs://``: arrays by TensorStore, other files by fsspec."""

import asyncio
import os
import time
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from etils.epath import gpath

from transformer_jax.checkpoints.folder import CheckpointFolder
from transformer_jax.checkpoints.format import is_step, unused_name
from transformer_jax.checkpoints.save_failure import SaveFailed
from transformer_jax.config.errors import first_line
from transformer_jax.config.json_text import parse_json
from transformer_jax.runtime.distributed import all_agree, is_first
from transformer_jax.runtime.file_digests import Part
from transformer_jax.runtime.object_store import changed_objects, move_objects, store_errors, write_object_digests
from transformer_jax.runtime.open_copies import (
    COMMIT,
    IN_PROGRESS,
    MARKER,
    OBJECTS,
    LockLost,
    after_commit,
    before_commit,
    lock_problem,
)


class CommittedFolder(ocp.path.atomicity.CommitFileTemporaryPath):
    """A checkpoint in a store, which cannot rename a folder: Orbax takes it for complete once it has ``commit_success.txt``.

    Readers of copies, and a run that resumes, ignore a checkpoint that has ``IN_PROGRESS``.
    """

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
        await asyncio.to_thread(before_commit, str(folder))
        await asyncio.to_thread(write_object_digests, str(folder))
        await super().finalize()
        await asyncio.to_thread((folder / COMMIT).write_text, str(time.time()))
        await asyncio.to_thread((folder / IN_PROGRESS).unlink, True)
        after_commit(str(folder))


class BucketFolder(CheckpointFolder):
    """The checkpoints of a run at ``s3://`` or ``gs://``, with the digests that the store computes.

    ``copy`` is the folder of the checkpoints in the local copy of the run, which has no arrays.
    """

    temporary_path = CommittedFolder
    arrays = ocp.StandardCheckpointHandler

    def __init__(self, address: str, copy: Path) -> None:
        # TensorFlow, which epath would use where it is installed, does not know s3://.
        os.environ["EPATH_USE_TF"] = "false"
        gpath._is_tf_installed.cache_clear()
        # TensorStore asks again after a minute without an answer; it would wait without limit.
        os.environ.setdefault("TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS", "60")
        os.environ.setdefault("TENSORSTORE_CURL_LOW_SPEED_LIMIT_BYTES", "1")
        if address.startswith("s3://"):
            _register_s3_driver()
        super().__init__(epath.Path(address))
        self._copy = copy

    def opening(self) -> AbstractContextManager[None]:
        return store_errors(str(self.path))

    def prepare(self, *, read_only: bool) -> list[str]:
        """Removes unfinished checkpoints."""
        if is_first() and not read_only:
            remove_uncommitted(self.path)
        return []

    def require_lock(self) -> None:
        problem = lock_problem(self._copy)
        if not all_agree(not problem, "lock of the run"):
            raise SaveFailed(problem or f"{self.path}: process 0 lost the lock of the run")

    def problem_of(self, error: BaseException) -> str:
        if isinstance(error, LockLost):
            return str(error)
        return f"{self.path}: cannot be written ({first_line(error)}); when the store answers, run the same command"

    def changed(self, step: int, names: list[str], part: Part) -> list[str]:
        """Of several processes that check parts, the first lists the objects: it is one request for a thousand."""
        return [] if part.number else changed_objects(str(self.path / str(step)), names)

    def has_digests(self, step: int) -> bool:
        return (self.path / str(step) / OBJECTS).exists()

    def set_aside(self, step: int) -> Path:
        target = unused_name(self.path, step)
        move_objects(str(self.path / str(step)), str(target))
        return target


def remove_uncommitted(checkpoints: Any) -> None:
    """Removes checkpoints whose save, upload or deletion a kill cut short; marks uploaded checkpoints for Orbax."""
    for folder in checkpoints.glob("[0-9]*"):
        if not is_step(folder.name):
            continue
        marker = folder / MARKER
        is_whole = marker.exists() and not (folder / IN_PROGRESS).exists()
        if is_whole and not (folder / COMMIT).exists():
            # Only a checkpoint that was complete on a disk has this time; Orbax may delete COMMIT of others before MARKER.
            is_whole = bool(parse_json(marker.read_text()).get("commit_timestamp_nsecs"))
            if is_whole:
                (folder / COMMIT).write_text("")
        if not is_whole:
            folder.rmtree()


@cache
def _register_s3_driver() -> None:
    """Gives TensorStore's S3 driver to Orbax, which knows only its driver for ``gs://``."""
    # Private modules, which another version may not have.
    from orbax.checkpoint._src.path import gcs_utils
    from orbax.checkpoint._src.serialization import tensorstore_utils

    of_gcs = gcs_utils.get_kvstore_for_gcs
    is_gcs, normalized = tensorstore_utils._use_gcs_driver, tensorstore_utils._normalize_path

    def kvstore(address: str) -> dict[str, Any]:
        if not address.startswith("s3://"):
            return of_gcs(address)
        bucket, _, path = address.removeprefix("s3://").partition("/")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        has_keys = "AWS_ACCESS_KEY_ID" in os.environ
        return {
            "driver": "s3",
            "bucket": bucket,
            "path": path,
            **({"endpoint": endpoint} if endpoint else {}),
            **({"aws_region": region} if region else {}),
            # The default chain looks for files first, and logs an error for each missing file.
            **({"aws_credentials": {"type": "environment"}} if has_keys else {}),
        }

    gcs_utils.get_kvstore_for_gcs = kvstore
    tensorstore_utils._use_gcs_driver = lambda directory: is_gcs(directory) or directory.startswith("s3://")
    tensorstore_utils._normalize_path = lambda path: normalized(path).replace("s3:/", "s3://")
