"""Set-up of JAX's compilation cache."""

import os
from pathlib import Path

import jax

from transformer_jax.config import ConfigError
from transformer_jax.config.checks import absolute_path


def start_jax(cache_directory: str | Path) -> None:
    """Turns on the persistent compilation cache, below ``cache_directory`` unless the environment names another folder.

    Raises ConfigError when there are several processes that did not join: each would use the others' devices as its own.
    """
    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        raise ConfigError(
            f"JAX sees {jax.process_count()} processes that did not join; give --distributed to train or evaluate, or use one "
            "host"
        )
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = absolute_path(str(cache_directory), "data.cache_directory")
        jax.config.update("jax_compilation_cache_dir", str(Path(folder) / "compiled"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
