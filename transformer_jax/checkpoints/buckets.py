"""Checkpoints that Orbax writes to and reads from ``s3://`` and ``gs://`` itself: arrays by TensorStore, other files by fsspec."""

import asyncio
import json
import os
import time
from functools import cache
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint._src.path import gcs_utils
from orbax.checkpoint._src.serialization import tensorstore_utils

from transformer_jax.checkpoints.format import is_step
from transformer_jax.runtime.object_store import MARKER, before_commit

COMMIT = "commit_success.txt"


class CommittedFolder(ocp.path.atomicity.CommitFileTemporaryPath):
    """A checkpoint in a store, which cannot rename a folder: it counts from the moment when it has ``commit_success.txt``.

    Readers of copies look for ``MARKER``, which Orbax would write first and this class writes last.
    """

    @classmethod
    def from_final(cls, final_path: Any, **options: Any) -> Any:
        return super().from_final(final_path, **options | {"checkpoint_metadata_store": None})

    async def finalize(self) -> None:
        """Called by process 0 when all processes have written, for the checkpoint and for each item."""
        folder = self.get_final()
        if not is_step(folder.name):
            await super().finalize()
            return
        await asyncio.to_thread(before_commit, str(folder))
        await super().finalize()
        committed = json.dumps({"commit_timestamp_nsecs": time.time_ns()})
        await asyncio.to_thread((folder / MARKER).write_text, committed)


def bucket_folder(address: str) -> Any:
    """The path of checkpoints at an address, after Orbax was prepared for its store."""
    # TensorFlow, which epath would use where it is installed, does not know s3://.
    os.environ.setdefault("EPATH_USE_TF", "false")
    # TensorStore asks again after a minute without an answer; it would wait without limit.
    os.environ.setdefault("TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS", "60")
    os.environ.setdefault("TENSORSTORE_CURL_LOW_SPEED_LIMIT_BYTES", "1")
    if address.startswith("s3://"):
        _teach_orbax_s3()
    return epath.Path(address)


def remove_uncommitted(checkpoints: Any) -> None:
    """Removes the objects of saves that a kill cut short; completes checkpoints that another reader counts as complete."""
    for folder in checkpoints.glob("[0-9]*"):
        if is_step(folder.name):
            missing = [name for name in (COMMIT, MARKER) if not (folder / name).exists()]
            if len(missing) == 2:
                folder.rmtree()
            else:
                for name in missing:
                    (folder / name).write_text("{}")


@cache
def _teach_orbax_s3() -> None:
    """Gives TensorStore's S3 driver to Orbax, which knows only its driver for ``gs://``."""
    of_gcs, is_gcs, normalized = (
        gcs_utils.get_kvstore_for_gcs,
        tensorstore_utils._use_gcs_driver,
        tensorstore_utils._normalize_path,
    )

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
