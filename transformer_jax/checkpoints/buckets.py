"""Checkpoints that Orbax writes and reads at ``s3://`` and ``gs://``: arrays by TensorStore, other files by fsspec."""

import asyncio
import os
from functools import cache
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from etils.epath import gpath

from transformer_jax.checkpoints.format import is_step
from transformer_jax.runtime.object_store import IN_PROGRESS, MARKER, before_commit

COMMIT = "commit_success.txt"


class CommittedFolder(ocp.path.atomicity.CommitFileTemporaryPath):
    """A checkpoint in a store, which cannot rename a folder: for Orbax it counts from when it has ``commit_success.txt``.

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
        await super().finalize()
        await asyncio.to_thread((folder / IN_PROGRESS).unlink)


def bucket_folder(address: str) -> Any:
    """The path of checkpoints at an address, after Orbax was prepared for its store."""
    # TensorFlow, which epath would use where it is installed, does not know s3://.
    os.environ["EPATH_USE_TF"] = "false"
    gpath._is_tf_installed.cache_clear()
    # TensorStore asks again after a minute without an answer; it would wait without limit.
    os.environ.setdefault("TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS", "60")
    os.environ.setdefault("TENSORSTORE_CURL_LOW_SPEED_LIMIT_BYTES", "1")
    if address.startswith("s3://"):
        _teach_orbax_s3()
    return epath.Path(address)


def remove_uncommitted(checkpoints: Any) -> None:
    """Removes saves and uploads that a kill cut short; marks uploaded checkpoints for Orbax."""
    for folder in checkpoints.glob("[0-9]*"):
        if is_step(folder.name):
            if (folder / IN_PROGRESS).exists() or not (folder / MARKER).exists():
                folder.rmtree()
            elif not (folder / COMMIT).exists():
                (folder / COMMIT).write_text("")


@cache
def _teach_orbax_s3() -> None:
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
            # The default chain looks for files first, and reports each that does not exist.
            **({"aws_credentials": {"type": "environment"}} if has_keys else {}),
        }

    gcs_utils.get_kvstore_for_gcs = kvstore
    tensorstore_utils._use_gcs_driver = lambda directory: is_gcs(directory) or directory.startswith("s3://")
    tensorstore_utils._normalize_path = lambda path: normalized(path).replace("s3:/", "s3://")
