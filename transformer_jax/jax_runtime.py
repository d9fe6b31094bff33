"""How JAX is set up before a command uses it."""

import os
from pathlib import Path

import jax

from transformer_jax.config import ConfigError


def start_jax(cache_directory: str | Path) -> None:
    """Turns on the persistent compilation cache, below ``cache_directory``, unless the user's environment already chose one.

    Raises ConfigError when JAX runs in several processes.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(Path(cache_directory).expanduser() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    if jax.process_count() > 1:
        raise ConfigError(
            f"this is one of {jax.process_count()} JAX processes; training on several hosts is not supported yet, "
            "use all devices of one"
        )
