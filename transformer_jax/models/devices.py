"""Attention backend, sharding constraints and precision policies for the devices of a mesh."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.array_types import Array, Hidden
from transformer_jax.config import ConfigError, RnnConfig, TransformerLayersConfig
from transformer_jax.layers.attention import ByLength
from transformer_jax.layers.embedding import Lookup, rows_of_table
from transformer_jax.layers.mesh_axes import ROW_AXES, constrain_rows, splits
from transformer_jax.layers.scaled_dot_product import AttentionBackend, EinsumAttention
from transformer_jax.precision import EVALUATION_ON_CPU, POLICIES, POLICIES_ON_CPU, Precision
from transformer_jax.runtime.hardware import device_of, is_nvidia_gpu, takes_key_ranges


def identity(hidden: Hidden) -> Hidden:
    return hidden


class Devices(NamedTuple):
    """Attention backend, constraint of hidden states [B, L, D], lookup in a table, and precision.

    The table may be sharded. Policies are by ``compute_dtype``.
    """

    attention: AttentionBackend = ByLength()
    constrain: Callable[[Hidden], Hidden] = identity
    lookup: Lookup = rows_of_table
    policies: Mapping[str, Precision] = POLICIES_ON_CPU


ANY_DEVICES = Devices()


def devices_of(config: TransformerLayersConfig | RnnConfig, mesh: Mesh, *, one_sentence: bool = False) -> Devices:
    """Return the parts for ``mesh``.

    If ``one_sentence``, a row is one sentence, padded on the right.
    Raises ConfigError if ``model.attention_backend`` cannot run there, or heads cannot be split.
    """
    attention = attention_of(config, mesh, one_sentence=one_sentence)
    if (devices := mesh.shape["context"] * mesh.shape["tensor"]) > 1 and not config.is_recurrent:
        heads: int = config.num_heads  # type: ignore[union-attr]  # recurrent models have none
        sizes = f"context={mesh.shape['context']} x tensor={mesh.shape['tensor']}"
        if heads % devices != 0:
            problem = f"model.num_heads={heads} does not divide over {sizes}, whose devices share the heads"
            raise ConfigError("mesh", problem)
        from transformer_jax.layers.attention_backends import AllToAllAttention

        attention = AllToAllAttention(attention, mesh)
    lookup = sharded_lookup(mesh) if mesh.shape["tensor"] > 1 else rows_of_table
    return Devices(attention, constrain_hidden(mesh), lookup, policies_on(mesh))


def attention_of(
    config: TransformerLayersConfig | RnnConfig, mesh: Mesh, *, one_sentence: bool = False
) -> AttentionBackend:
    """Return the backend of ``model.attention_backend``; ``auto`` is the best for ``mesh``.

    Raises ConfigError if it cannot run here.
    """
    name = config.attention_backend
    if name == "einsum":
        return EinsumAttention()
    if name == "blockwise":
        from transformer_jax.layers.blockwise_attention import BlockwiseAttention

        return BlockwiseAttention()
    if name == "auto":
        kernel = next((backend for backend in ("tpu_flash", "cudnn") if _obstacle(backend, config, mesh) is None), None)
        if kernel is None:
            return ByLength()
    else:
        kernel, obstacle = name, _obstacle(name, config, mesh)
        if obstacle is not None:
            raise ConfigError("model.attention_backend", f"{name} {obstacle}", "use auto, einsum or blockwise")
    from transformer_jax.layers.attention_backends import (
        BY_HEAD,
        CudnnAttention,
        PackedCudnnAttention,
        RowBlockAttention,
        TpuFlashAttention,
    )

    if kernel == "cudnn":
        is_packed = not one_sentence and takes_key_ranges(device_of(mesh))
        cudnn = PackedCudnnAttention(mesh, BY_HEAD) if is_packed else CudnnAttention(one_sentence)
        # Counted: without a mask cuDNN moves fewer bytes from 40 positions on, and 64 is the next
        # width of a program.
        limit = 64 * 64 if one_sentence or is_packed else ByLength.limit
        return cudnn if name == "cudnn" else ByLength(long=cudnn, limit=limit)
    flash = TpuFlashAttention(mesh, BY_HEAD)
    # Counted: up to 512 positions row blocks move as few bytes as the kernel.
    return flash if name == "tpu_flash" else ByLength(RowBlockAttention(mesh, BY_HEAD), flash, limit=512 * 512)


def _obstacle(name: str, config: Any, mesh: Mesh) -> str | None:
    """Return the reason that a backend cannot run, or None."""
    device = device_of(mesh)
    owner = {"cudnn": "an NVIDIA GPU", "tpu_flash": "a TPU"}[name]
    if not (is_nvidia_gpu(device) if name == "cudnn" else device.platform == "tpu"):
        return f"needs {owner}, and the devices here are of the kind {device.device_kind!r}"
    if config.attention_dropout:
        return f"has no dropout, and model.attention_dropout is {config.attention_dropout}"
    if config.head_key_size != config.head_value_size:
        sizes = f"d_key={config.head_key_size} and d_value={config.head_value_size}"
        return f"needs keys as wide as values, not {sizes}"
    if name == "cudnn" and config.compute_dtype != "bfloat16":
        return f"needs model.compute_dtype=bfloat16, not {config.compute_dtype}"
    if name == "cudnn" and (config.head_key_size % 8 or config.head_key_size > 128):
        return f"needs heads of a multiple of 8 up to 128, not of {config.head_key_size}"
    return None


def policies_on(mesh: Mesh, *, of_evaluation: bool = False) -> Mapping[str, Precision]:
    on_cpu = EVALUATION_ON_CPU if of_evaluation else POLICIES_ON_CPU
    policies = on_cpu if device_of(mesh).platform == "cpu" else POLICIES
    if mesh.shape["context"] * mesh.shape["tensor"] == 1:
        return policies
    return {name: replace(policy, merges_positions=False) for name, policy in policies.items()}


def constrain_hidden(mesh: Mesh) -> Callable[[Array], Array]:
    """Return the sharding constraint of hidden states: positions over ``context`` and ``tensor``.

    So no device repeats the norms, residuals and dropout of another, and the all-reduce of a
    sublayer's output becomes a reduce-scatter and an all-gather (Korthikanti et al. 2022, section
    4.2.2).
    """
    if mesh.shape["context"] * mesh.shape["tensor"] == 1:
        return constrain_rows(mesh)

    def constrain(hidden: Array) -> Array:
        tokens = _token_partition(hidden.shape[1], mesh, ("context", "tensor"), ("context",))
        return lax.with_sharding_constraint(hidden, NamedSharding(mesh, tokens))

    return constrain


def sharded_lookup(mesh: Mesh) -> Lookup:
    """Return a lookup in a table [V, D] split over ``tensor``, with a psum of the rows of devices.

    The compiler would gather the whole table on every device.
    """

    def local_rows(table: Array, token_ids: Array) -> Array:
        index = token_ids - lax.axis_index("tensor") * len(table)
        is_mine = (index >= 0) & (index < len(table))
        rows = table[jnp.clip(index, 0, len(table) - 1)]
        return lax.psum(jnp.where(is_mine[..., None], rows, 0.0), "tensor")

    def lookup(table: Array, token_ids: Array) -> Array:
        tokens = _token_partition(token_ids.shape[1], mesh, ("context",))
        in_specs = P("tensor", None), tokens
        return jax.shard_map(local_rows, mesh=mesh, in_specs=in_specs, out_specs=tokens)(table, token_ids)

    return lookup


def _token_partition(length: int, mesh: Mesh, *choices: tuple[str, ...]) -> P:
    """Return the partition of [B, L, ...], by the first of ``choices`` of axes that splits L."""
    return P(ROW_AXES, next((axes for axes in choices if splits(length, mesh, axes)), None))
