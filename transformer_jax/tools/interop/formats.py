"""Formats by name; the module of a format, with its libraries, is imported on first use."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_jax.config import ConfigError

if TYPE_CHECKING:
    from transformer_jax.tools.interop.models import OpenedModel
    from transformer_jax.tools.interop.parity import Counterpart

MODULES = {
    "ctranslate2": "ctranslate2",
    "huggingface": "hugging_face",
    "safetensors": "archive",
}
EXPORTED = ("ctranslate2", "huggingface", "safetensors")
IMPORTED = ("huggingface", "safetensors")
# Files by which an exported model is recognized; every format has config.json.
MARKS = {"model.bin": "ctranslate2", "manifest.json": "safetensors", "config.json": "huggingface"}


def format_module(name: str) -> Any:
    """Return the module of a format.

    A format in ``EXPORTED`` has ``export(model, folder, texts, **options)`` and
    ``open_counterpart(folder, model)``, a format in ``IMPORTED`` has ``read(path, **options)``.
    """
    return importlib.import_module(f"transformer_jax.tools.interop.{MODULES[name]}")


def open_counterpart(folder: Path, model: "OpenedModel") -> "Counterpart":
    """Return the counterpart in ``folder``, in any exported format; raises ConfigError for an unknown format."""
    if not folder.is_dir():
        raise ConfigError("--against", f"{folder} is not a folder", "give one that export wrote")
    for file, name in MARKS.items():
        if (folder / file).is_file():
            counterpart: Counterpart = format_module(name).open_counterpart(folder, model)
            return counterpart
    names = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise ConfigError("--against", f"{folder} has no model of a known format ({', '.join(EXPORTED)})", f"found {names}")
