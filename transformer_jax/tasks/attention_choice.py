"""Execution of a model on the devices of a mesh: its attention backend, its placement, the size of a block of logits."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import Mesh

from transformer_jax.config import ConfigError, RnnConfig, TransformerLayersConfig
from transformer_jax.layers.attention_backends import (
    AttentionBackend,
    ByLength,
    CudnnAttention,
    EinsumAttention,
    TpuFlashAttention,
)
from transformer_jax.layers.blockwise_attention import BlockwiseAttention
from transformer_jax.layers.context_parallel import BY_HEAD, AllToAllAttention
from transformer_jax.layers.row_blocks import RowBlockAttention
from transformer_jax.models.build import Devices
from transformer_jax.precision import POLICIES, POLICIES_ON_CPU, Precision
from transformer_jax.runtime.hardware import is_nvidia_gpu
from transformer_jax.training.projected_loss import LogitBlocks
from transformer_jax.training.sharding import lookup_in_split_table, positions_in_place

# Logits of the loss that exist at a time on a device: on a CPU what its cache holds, elsewhere what keeps the products large.
# Each chunk reads and writes the gradient of the whole matrix, so a GPU, which has the memory, takes few.
LOGIT_BLOCKS = {"cpu": LogitBlocks(2**21, 1), "gpu": LogitBlocks(2**28, 128)}
LOGIT_BLOCKS_ELSEWHERE = LogitBlocks(2**26, 128)
# A step of decoding reads all parameters, whatever its rows; on a CPU it is bound by its products before.
BATCH_TOKENS, BATCH_TOKENS_ELSEWHERE = {"cpu": 4096}, 16_384


def devices_of(config: TransformerLayersConfig | RnnConfig, mesh: Mesh, *, one_sentence: bool = False) -> Devices:
    """Attention, hidden states and tables of a model on ``mesh``; ``one_sentence``: each row is one, padded on the right.

    Raises ConfigError when ``model.attention_backend`` cannot run there, or heads cannot be split as ``mesh`` says.
    """
    attention = attention_of(config, mesh, one_sentence=one_sentence)
    if mesh.shape["context"] * mesh.shape["tensor"] > 1 and not config.is_recurrent:
        attention = over_heads(attention, config, mesh)
    on = Devices(attention, positions_in_place(mesh), policies=policies_on(mesh))
    return on._replace(lookup=lookup_in_split_table(mesh)) if mesh.shape["tensor"] > 1 else on


def over_heads(attention: AttentionBackend, config: Any, mesh: Mesh) -> AllToAllAttention:
    """``attention`` where devices share sequences or layers; raises ConfigError unless they can share the heads."""
    if config.num_heads % (mesh.shape["context"] * mesh.shape["tensor"]):
        raise ConfigError(
            f"mesh: devices along context and tensor share the heads of attention, and model.num_heads={config.num_heads} does "
            f"not divide over context={mesh.shape['context']} x tensor={mesh.shape['tensor']}"
        )
    return AllToAllAttention(attention, mesh)


def policies_on(mesh: Mesh) -> Mapping[str, Precision]:
    """Precision policies, by ``model.compute_dtype``, on the devices of ``mesh``."""
    policies = POLICIES_ON_CPU if device_of(mesh).platform == "cpu" else POLICIES
    if mesh.shape["context"] * mesh.shape["tensor"] == 1:
        return policies
    return {name: replace(policy, merges_positions=False) for name, policy in policies.items()}


def logit_blocks(mesh: Mesh) -> LogitBlocks:
    """Division of the logits of the loss on a device of ``mesh``."""
    platform = device_of(mesh).platform
    blocks = LOGIT_BLOCKS.get(platform, LOGIT_BLOCKS_ELSEWHERE)
    # A vocabulary that is split over devices would move between them to be filled up.
    return blocks._replace(vocabulary_multiple=1) if mesh.shape["tensor"] > 1 else blocks


def attention_of(
    config: TransformerLayersConfig | RnnConfig, mesh: Mesh, *, one_sentence: bool = False
) -> AttentionBackend:
    """Backend that ``model.attention_backend`` names; ``auto`` is the best that can run on the devices of ``mesh``.

    Raises ConfigError when it cannot run here.
    """
    name = config.attention_backend
    kernels: dict[str, AttentionBackend] = {
        "cudnn": CudnnAttention(one_sentence),
        "tpu_flash": TpuFlashAttention(mesh, BY_HEAD),
    }
    if name == "auto":
        able = [kernel for key, kernel in kernels.items() if not _obstacle(key, config, mesh)]
        if not able:
            return ByLength()
        if able[0] is kernels["tpu_flash"]:
            # Counted: up to 512 positions they move as few bytes as the kernel.
            return ByLength(RowBlockAttention(mesh, BY_HEAD), able[0], limit=512 * 512)
        # Measured on no GPU or TPU; counted, cuDNN moves fewer bytes from 40 positions on where it needs no mask.
        return (
            ByLength(many=able[0], limit=64 * 64)
            if one_sentence and able[0] is kernels["cudnn"]
            else ByLength(many=able[0])
        )
    obstacle = _obstacle(name, config, mesh)
    if obstacle:
        raise ConfigError(f"model.attention_backend: {name} {obstacle}; use auto, einsum or blockwise")
    everywhere: dict[str, AttentionBackend] = {"einsum": EinsumAttention(), "blockwise": BlockwiseAttention()}
    return (kernels | everywhere)[name]


def batch_tokens_on(mesh: Mesh, stated: int) -> int:
    """Input positions that a device of ``mesh`` decodes at once: ``decoding.batch_tokens``, or what suits it for 0."""
    return stated or BATCH_TOKENS.get(device_of(mesh).platform, BATCH_TOKENS_ELSEWHERE)


def few_shapes_on(mesh: Mesh) -> bool:
    """Whether a program takes longer to compile on the devices of ``mesh`` than padding costs a validation."""
    return device_of(mesh).platform != "cpu"


def device_of(mesh: Mesh) -> jax.Device:
    """The first device: all are of one kind."""
    return mesh.devices.flat[0]


def _obstacle(name: str, config: Any, mesh: Mesh) -> str | None:
    """Reason why that attention cannot run, None if it can."""
    if name in ("einsum", "blockwise"):
        return None
    device = device_of(mesh)
    is_there = is_nvidia_gpu(device) if name == "cudnn" else device.platform == "tpu"
    if not is_there:
        owners = {"cudnn": "an NVIDIA GPU", "tpu_flash": "a TPU"}
        return f"needs {owners[name]}, and the devices here are of the kind {device.device_kind!r}"
    if config.attention_dropout:
        return f"drops no weights, and model.attention_dropout is {config.attention_dropout}"
    if config.head_key_size != config.head_value_size:
        sizes = f"d_key={config.head_key_size} and d_value={config.head_value_size}"
        return f"needs keys as wide as values, not {sizes}"
    if name == "cudnn" and config.compute_dtype != "bfloat16":
        return f"needs model.compute_dtype=bfloat16, not {config.compute_dtype}"
    if name == "cudnn" and (config.head_key_size % 8 or config.head_key_size > 128):
        return f"needs heads of a multiple of 8 up to 128, not of {config.head_key_size}"
    return None
