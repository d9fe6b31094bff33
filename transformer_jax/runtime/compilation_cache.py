"""Set-up of JAX's compilation cache."""

import os
from pathlib import Path

import jax

from transformer_jax.config import ConfigError
from transformer_jax.config.addresses import is_address


def start_jax(cache_directory: str | Path) -> None:
    """Turns on the persistent compilation cache, below ``cache_directory``, unless the user's environment already chose one.

    Of one in an object store JAX has a local copy. Raises ConfigError when there are several processes that did not join: each
    would take the others' devices for its own; StoreError when the store does not answer.
    """
    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        raise ConfigError(
            f"JAX sees {jax.process_count()} processes that did not join; give --distributed to train or evaluate, or use one "
            "host"
        )
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(_folder(str(cache_directory))))
        if is_address(cache_directory):
            # XLA's own caches put their folder, another one on each machine, into the key of a program.
            jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _folder(cache_directory: str) -> Path:
    if not is_address(cache_directory):
        return Path(cache_directory).expanduser() / "compiled"
    # It needs fsspec.
    from transformer_jax.runtime.remote_programs import local_programs

    return local_programs(f"{cache_directory.rstrip('/')}/compiled")
