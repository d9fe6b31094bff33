"""Formats by name; the module of a format, with its libraries, is imported on first use."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_jax.config import ConfigError

if TYPE_CHECKING:
    from transformer_jax.tools.interop.opened_model import OpenedModel
    from transformer_jax.tools.interop.parity import Counterpart

MODULES = {
    "ctranslate2": "ctranslate2",
    "huggingface": "hugging_face",
    "safetensors": "archive",
    "fairseq": "fairseq",
}
EXPORTED = ("ctranslate2", "huggingface", "safetensors")
IMPORTED = ("huggingface", "safetensors", "fairseq")


def format_module(name: str) -> Any:
    """The module of a format.

    A format in ``EXPORTED`` has ``export(model, folder, texts, **options)`` and ``counterpart_of(folder)``, a format in
    ``IMPORTED`` has ``read(path, **options)``.
    """
    return importlib.import_module(f"transformer_jax.tools.interop.{MODULES[name]}")


def open_counterpart(folder: Path, model: "OpenedModel") -> "Counterpart":
    """The counterpart in ``folder``, in any exported format; raises ConfigError for an unknown format."""
    if not folder.is_dir():
        raise ConfigError(f"--against: {folder} is not a folder; give one that export wrote")
    for name in EXPORTED:
        if (kind := format_module(name).counterpart_of(folder)) is not None:
            counterpart: Counterpart = kind(folder, model)
            return counterpart
    names = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise ConfigError(f"--against: {folder} has no model of a known format ({', '.join(EXPORTED)}); found {names}")
