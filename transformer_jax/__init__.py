"""Sequence transduction with attention, in JAX and Flax.

Three lines use a trained model::

    run = transformer_jax.load("runs/m30k")
    run.translate("A man sleeps.")
    run.attention("A man sleeps.").draw("attention.png")
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_jax.api.trained_run import Attention, AttentionLayer, Run, load
    from transformer_jax.api.training import train
    from transformer_jax.config import ConfigError, DataError
    from transformer_jax.config.plugins import load_plugin, register
    from transformer_jax.runs.hooks import Callback
    from transformer_jax.tasks.task import Evaluation
    from transformer_jax.tasks.texts import TokenScores

__version__ = "0.3.0"
__all__ = [
    "Attention",
    "AttentionLayer",
    "Callback",
    "ConfigError",
    "DataError",
    "Evaluation",
    "Run",
    "TokenScores",
    "load",
    "load_plugin",
    "register",
    "train",
]

_MODULES = {
    "Attention": "transformer_jax.api.trained_run",
    "AttentionLayer": "transformer_jax.api.trained_run",
    "Callback": "transformer_jax.runs.hooks",
    "ConfigError": "transformer_jax.config",
    "DataError": "transformer_jax.config",
    "Evaluation": "transformer_jax.tasks.task",
    "Run": "transformer_jax.api.trained_run",
    "TokenScores": "transformer_jax.tasks.texts",
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
    return [*__all__, "__version__"]
