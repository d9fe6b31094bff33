"""The private modules of libraries that this package uses.

Another version may lack them: ``tests/test_private_modules.py`` imports them.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

JOINED_READS = {
    "experimental_read_coalescing_threshold_bytes": 1 << 14,
    "experimental_read_coalescing_interval": "20ms",
}


def coordination_client() -> Any:
    """Return the client of JAX's coordination service, None before ``jax.distributed.initialize``.

    Public JAX has no barrier with a time limit and no exchange of small values between processes:
    ``jax.experimental.multihost_utils.sync_global_devices`` and ``process_allgather`` are
    collectives, which fail after 30 s.
    """
    from jax._src.distributed import global_state

    return global_state.client


def keep_tensorflow_from_epath() -> None:
    """Make epath use fsspec, also after its first use: TensorFlow does not know ``s3://``."""
    from etils.epath import gpath

    os.environ["EPATH_USE_TF"] = "false"
    gpath._is_tf_installed.cache_clear()


@functools.cache
def fit_orbax_to_stores(kvstore: Callable[[str], dict[str, Any]]) -> None:
    """Give Orbax, which knows only ``gs://``, the S3 driver of TensorStore (``kvstore``).

    Also joins fewer reads, and repeats a transaction whose answer was lost. Orbax joins reads that
    come within 1 ms and are less than 1 MB apart, and so reads parts of small checkpoints twice. To
    be removed once ``orbax.checkpoint`` takes paths at ``s3://``, and has options for these.
    """
    from orbax.checkpoint._src.path import gcs_utils
    from orbax.checkpoint._src.serialization import jax_array_handlers, tensorstore_utils

    of_gcs = gcs_utils.get_kvstore_for_gcs
    is_gcs, normalized = tensorstore_utils._use_gcs_driver, tensorstore_utils._normalize_path

    gcs_utils.get_kvstore_for_gcs = lambda path: kvstore(path) if path.startswith("s3://") else of_gcs(path)
    tensorstore_utils._use_gcs_driver = lambda directory: is_gcs(directory) or directory.startswith("s3://")
    tensorstore_utils._normalize_path = lambda path: normalized(path).replace("s3:/", "s3://")
    build = tensorstore_utils.build_kvstore_tspec

    def specification(*arguments: Any, **options: Any) -> dict[str, Any]:
        spec: dict[str, Any] = build(*arguments, **options)
        return spec | {key: value for key, value in JOINED_READS.items() if key in spec}

    tensorstore_utils.build_kvstore_tspec = specification
    write = jax_array_handlers._async_serialize_replica_slices

    async def written(*arguments: Any, **options: Any) -> Any:
        try:
            return await write(*arguments, **options)
        except ValueError as error:
            # TensorStore repeated a request whose answer was lost, and met its own objects.
            if not str(error).startswith("ALREADY_EXISTS"):
                raise
            return await write(*arguments, **options)

    jax_array_handlers._async_serialize_replica_slices = written


def splash_attention() -> tuple[Any, Any]:
    """Return the modules of Pallas' splash attention for TPUs: the kernel and its masks.

    They are experimental: ``jax.nn.dot_product_attention`` skips no masked blocks on TPUs.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

    return splash_attention_kernel, splash_attention_mask


def cudnn_attention() -> Any:
    """Return the module of cuDNN's fused attention, whose kernels take a function of the scores.

    ``jax.nn.dot_product_attention`` has no such argument. The module's function of that name asks
    for the GPU of this process, so a program for another GPU needs its primitives.
    """
    from jax._src.cudnn import fused_attention_stablehlo

    return fused_attention_stablehlo
