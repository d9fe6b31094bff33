"""How JAX is set up before a command uses it."""

import os
from pathlib import Path

import jax


def start_jax(cache_directory: str | Path) -> None:
    """Turns on the persistent compilation cache, below ``cache_directory``, unless the user's environment already chose one."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(Path(cache_directory).expanduser() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
