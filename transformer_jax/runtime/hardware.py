"""Devices and their capabilities, memory and disk of this host, and the start of JAX."""

import os
import re
import resource
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.data import CPU_WIDTH_MULTIPLE
from transformer_jax.files.paths import absolute_path

# Linux's names for bfloat16 instructions of x86: dot products of AVX-512, the matrix unit (AMX).
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}
# Compute capabilities.
FIRST_NVIDIA_GENERATION = 8.0  # Ampere
HOPPER = 9.0
FIRST_CUDNN_WITH_SCORE_CHANGES = 91300
# Widths that fill tiles of products: tensor cores take 8 numbers of 2 bytes, TPUs rows of 16.
WIDTH_MULTIPLES = {"gpu": 8, "tpu": 16}


def has_bfloat16_units(device: Any, cpu_info: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether a device has units for matrix products of bfloat16.

    TPUs and AMD GPUs: yes. NVIDIA GPUs: from Ampere on. x86 processors: by the instructions that
    Linux reports. Other processors: no, since XLA's kernels for them widen to float32.
    """
    if device.platform == "cpu":
        text = cpu_info.read_text(encoding="utf-8") if cpu_info.is_file() else ""
        flags = re.search(r"^flags\s*:(.*)$", text, flags=re.MULTILINE)
        return flags is not None and not BFLOAT16_FLAGS.isdisjoint(flags[1].split())
    capability = str(getattr(device, "compute_capability", ""))
    return not capability.replace(".", "").isdigit() or float(capability) >= FIRST_NVIDIA_GENERATION


def require_memory(needed: int, devices: Sequence[Any]) -> None:
    """Raise ConfigError when ``needed`` bytes of parameters and optimizer exceed the memory."""
    if devices[0].platform == "cpu":
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        available = len(devices) * (devices[0].memory_stats() or {}).get("bytes_limit", needed)
    if needed > available:
        raise ConfigError(
            "model",
            f"parameters and optimizer state need at least {needed / 1e9:,.0f} GB, and there are "
            f"{available / 1e9:,.0f} GB of memory",
            "make the model smaller (model.d_model, model.d_ff, tokenizer.vocabulary_size), or shard "
            "it over more devices (mesh.fsdp, mesh.tensor)",
        )


def is_nvidia_gpu(device: Any) -> bool:
    """Return whether this is an NVIDIA GPU, also one that is only compiled for."""
    names = f"{device.client.platform_version} {device.device_kind}".lower()
    return device.platform == "gpu" and ("cuda" in names or "nvidia" in names)


def takes_key_ranges(device: Any) -> bool:
    """Return whether cuDNN (9.13 on) can change scores inside its attention kernel (Hopper on)."""
    from transformer_jax.private_modules import cudnn_attention

    capability = str(getattr(device, "compute_capability", ""))
    is_new = capability.replace(".", "").isdigit() and float(capability) >= HOPPER
    # Without a GPU the version is not known, and a program is only compiled.
    versions = cudnn_attention().cuda_versions
    return is_new and (versions is None or versions.cudnn_get_version() >= FIRST_CUDNN_WITH_SCORE_CHANGES)


def device_of(mesh: Any) -> Any:
    """Return the first device of a mesh, whose devices are all of one kind."""
    return mesh.devices.flat[0]


def batch_tokens_on(mesh: Any, setting: int) -> int:
    """Return the input positions that a device decodes at once. ``setting`` 0: a default."""
    # A decoding step reads all parameters, so large batches pay until arithmetic limits it.
    return setting or (4096 if device_of(mesh).platform == "cpu" else 16_384)


def few_shapes_on(mesh: Any) -> bool:
    """Return whether a compilation takes longer on ``mesh`` than padding costs a validation."""
    return bool(device_of(mesh).platform != "cpu")


def evaluation_dtype(setting: str, of_model: str, device: Any) -> str:
    """Return the precision of ``decoding.compute_dtype``; ``model`` on CPUs is float32."""
    if setting != "model":
        return setting
    return "float32" if device.platform == "cpu" else of_model


class DeviceSettings(NamedTuple):
    """Settings that follow from the device."""

    compute_dtype: str
    width_multiple: int


def settings_on(device: Any) -> DeviceSettings:
    """Return bfloat16 if ``device`` has units for it, and widths that fill its tiles."""
    compute_dtype = "bfloat16" if has_bfloat16_units(device) else "float32"
    return DeviceSettings(compute_dtype, WIDTH_MULTIPLES.get(device.platform, CPU_WIDTH_MULTIPLE))


def resolve_for_device(config: ExperimentConfig, choose: Callable[[], DeviceSettings]) -> ExperimentConfig:
    """Replace ``model.compute_dtype=auto`` and ``batching.width_multiple=0`` by ``choose()``."""
    model, batching = config.model, config.batching
    is_open = getattr(batching, "width_multiple", None) == 0
    if model.compute_dtype != "auto" and not is_open:
        return config
    settings = choose()
    if model.compute_dtype == "auto":
        model = replace(model, compute_dtype=settings.compute_dtype)
    if is_open:
        batching = replace(batching, width_multiple=settings.width_multiple)
    return replace(config, model=model, batching=batching)


def host_usage(folder: Path) -> dict[str, float]:
    """Return memory of this process and free space on the disk of ``folder``, in 10^9 bytes."""
    return {"host/memory_gb": _memory_bytes() / 1e9, "host/free_disk_gb": shutil.disk_usage(folder).free / 1e9}


def _memory_bytes() -> int:
    """Return the resident set (proc(5)), or without /proc its maximum so far (getrusage(2))."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return pages * os.sysconf("SC_PAGE_SIZE")


def start_jax(cache_directory: str | Path) -> None:
    """Turn on the persistent compilation cache, by default below ``cache_directory``.

    The environment may name another folder. Raises ConfigError when there are several processes
    that did not join: each would use the others' devices as its own.
    """
    import jax

    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        problem = f"JAX sees {jax.process_count()} processes that did not join"
        raise ConfigError(problem, remedy="give --distributed to train or evaluate, or use one host")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = absolute_path(str(cache_directory), "data.cache_directory")
        jax.config.update("jax_compilation_cache_dir", str(Path(folder) / "compiled"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
