"""Sequence transduction with attention, in JAX and Flax.

Three lines use a trained model::

    run = transformer_jax.load("runs/m30k")
    run.translate("A man sleeps.")
    run.attention("A man sleeps.").draw("attention.png")
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_jax.api.loaded_run import Run, load
    from transformer_jax.api.training import train
    from transformer_jax.errors import ConfigError, DataError
    from transformer_jax.registry.plugins import register
    from transformer_jax.registry.python_files import load_plugin
    from transformer_jax.runs.hooks import Callback
    from transformer_jax.tasks.task import Evaluation
    from transformer_jax.tasks.texts import Attention, AttentionLayer, TokenScores

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
    "api.loaded_run": ("Run", "load"),
    "api.training": ("train",),
    "errors": ("ConfigError", "DataError"),
    "registry.plugins": ("register",),
    "registry.python_files": ("load_plugin",),
    "runs.hooks": ("Callback",),
    "tasks.task": ("Evaluation",),
    "tasks.texts": ("Attention", "AttentionLayer", "TokenScores"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line starts without JAX."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"transformer_jax.{module}"), name)
    raise AttributeError(f"module 'transformer_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
