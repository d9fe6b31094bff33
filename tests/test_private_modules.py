"""The private modules of libraries, all in one file: each is imported, and the error of one that is
gone names what to use."""

import ast
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "transformer_jax"
# By module or name: the public one to move to, once it can do the same.
PRIVATE = {
    "jax._src.distributed:global_state": "jax.experimental.multihost_utils, once its barriers and values have a time limit",
    "orbax.checkpoint._src.path.gcs_utils:get_kvstore_for_gcs": "epath at s3:// as a checkpoint's path, in Orbax itself",
    "orbax.checkpoint._src.serialization.tensorstore_utils:_use_gcs_driver": "the same",
    "orbax.checkpoint._src.serialization.tensorstore_utils:_normalize_path": "the same",
    "orbax.checkpoint._src.serialization.tensorstore_utils:build_kvstore_tspec": "an option of Orbax for joined reads",
    "orbax.checkpoint._src.serialization.jax_array_handlers:_async_serialize_replica_slices": "the same "
    "transaction, once a lost answer does not fail it",
    "jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel:make_splash_mha": "jax.nn.dot_product_attention, "
    "once it skips masked blocks on TPUs",
    "jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask:LocalMask": "the same",
    **{
        f"jax._src.cudnn.fused_attention_stablehlo:{name}": "jax.nn.dot_product_attention, once it takes a score_mod"
        for name in (
            "_dot_product_attention_fwd_p",
            "_dot_product_attention_bwd_p",
            "MaskType",
            "AttentionLayout",
            "cuda_versions",
        )
    },
    "etils.epath.gpath:PosixGPath": "epath.Path, once a path can be given its file system",
    "etils.epath.gpath:_is_tf_installed": "an option of epath that leaves TensorFlow alone",
}


@pytest.mark.parametrize("name", PRIVATE)
def test_each_private_module_is_there(name):
    module, _, attribute = name.partition(":")
    assert hasattr(importlib.import_module(module), attribute), f"{name} is gone; use {PRIVATE[name]}"


def test_no_other_file_uses_one():
    found = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any("._src" in name or name.startswith("jax.experimental.pallas.ops") for name in names):
                found[file.relative_to(PACKAGE).as_posix()] = names
    assert set(found) == {"private_modules.py"}
