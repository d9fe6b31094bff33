"""Compiled programs that several tests, and the processes that they start, share through a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

SECONDS = "jax_persistent_cache_min_compile_time_secs"


@contextmanager
def compiled_once(folder: Path, *, in_processes: bool) -> Iterator[None]:
    """What is compiled inside is kept there; by processes too, where none is killed while it writes."""
    settings = {"jax_enable_compilation_cache": True, "jax_compilation_cache_dir": str(folder), SECONDS: 0.0}
    before = {name: getattr(jax.config, name) for name in settings}
    # The commands themselves decide how short a compilation is worth keeping.
    shared = [name for name in settings if in_processes and name != SECONDS]
    environment = {name.upper(): str(settings[name]) for name in shared}
    environment_before = {name: os.environ.get(name) for name in environment}
    _set(settings, environment)
    try:
        yield
    finally:
        _set(before, environment_before)


def _set(settings: dict[str, object], environment: dict[str, str | None]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    for name, value in environment.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    # JAX opens one cache, and decides whether there is one, once in a process.
    reset_cache()
