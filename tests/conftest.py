"""What every test runs under: eight pretended CPU devices, checked shapes and types, no silent broadcasting of ranks."""

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

jax.config.update("jax_numpy_rank_promotion", "raise")
