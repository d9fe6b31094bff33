"""What every test runs under: eight pretended CPU devices, checked shapes and types, no silent broadcasting of ranks."""

import gc
import os

# Before JAX is imported, here and in the processes that tests start. Accelerators stay free: the tests are about meaning.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# A process that is killed while it writes an entry leaves half of it behind, and some tests kill processes.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
# Compiling takes most of the time here, and what is computed is tiny.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")

from jaxtyping import install_import_hook

# Before the package is imported: every annotation is checked at every call, shapes included.
install_import_hook("transformer_jax", "beartype.beartype")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of whole runs first: started last, the longest of them would keep one core busy alone."""
    items.sort(key=lambda item: "runs" not in item.path.parts)


@pytest.fixture(scope="module", autouse=True)
def forgotten_programs():
    """What a file compiled serves no other; kept, it fills memory, and the collector goes through it again and again."""
    yield
    jax.clear_caches()
    gc.collect()
