"""What whole runs of a few seconds share."""

from pathlib import Path

import jax
import pytest


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def compiled_once(cache):
    """These tests compile the same few programs again and again; the processes that are killed share nothing."""
    settings = {"jax_enable_compilation_cache": True, "jax_compilation_cache_dir": str(cache / "compiled")}
    settings |= {"jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
