"""Sequence transduction with attention, in JAX and Flax.

Three lines use a trained model::

    run = transformer_jax.load("runs/m30k")
    run.translate("A man sleeps.")
    run.attention("A man sleeps.").draw("attention.png")
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_jax.api.trained_run import Run, load
    from transformer_jax.api.training import train
    from transformer_jax.config import ConfigError, DataError
    from transformer_jax.config.plugins import load_plugin, register
    from transformer_jax.runs.hooks import Callback

__version__ = "0.3.0"
__all__ = ["Callback", "ConfigError", "DataError", "Run", "load", "load_plugin", "register", "train"]

_MODULES = {
    "Callback": "transformer_jax.runs.hooks",
    "ConfigError": "transformer_jax.config",
    "DataError": "transformer_jax.config",
    "Run": "transformer_jax.api.trained_run",
    "load_plugin": "transformer_jax.config.plugins",
    "register": "transformer_jax.config.plugins",
    "load": "transformer_jax.api.trained_run",
    "train": "transformer_jax.api.training",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: the command line starts without JAX."""
    if name not in _MODULES:
        raise AttributeError(f"module 'transformer_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
