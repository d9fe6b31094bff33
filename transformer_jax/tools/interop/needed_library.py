"""Libraries that only some formats need."""

import contextlib
from collections.abc import Iterator

from transformer_jax.config import ConfigError


@contextlib.contextmanager
def needing(*packages: str) -> Iterator[None]:
    """Around an import: raises ConfigError that names the first of ``packages``, and how to install them, where it fails."""
    try:
        yield
    except ImportError:
        raise ConfigError(f"{packages[0]} is not installed; pip install {' '.join(packages)}") from None
