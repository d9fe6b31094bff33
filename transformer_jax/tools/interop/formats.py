"""Formats by name; the modules of a format, and its libraries, are imported when it is used."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer_jax.config import ConfigError

if TYPE_CHECKING:
    from transformer_jax.tools.interop.counterpart import Counterpart
    from transformer_jax.tools.interop.opened_model import OpenedModel


class Format(NamedTuple):
    """The modules that write a format, run what was written, and read it; empty where a format lacks one."""

    export: str = ""
    counterparts: tuple[str, ...] = ()
    reader: str = ""


FORMATS = {
    "ctranslate2": Format("ctranslate2_export", ("ctranslate2_counterpart",)),
    "huggingface": Format(
        "hugging_face_export", ("hugging_face_counterpart", "gpt2_counterpart"), "hugging_face_reader"
    ),
    "safetensors": Format("archive_export", ("archive_counterpart",), "archive_reader"),
    "fairseq": Format(reader="fairseq_reader"),
    "stablehlo": Format("stablehlo_export", ("stablehlo_counterpart",)),
}
EXPORTED = tuple(name for name, each in FORMATS.items() if each.export)
IMPORTED = tuple(name for name, each in FORMATS.items() if each.reader)


def module(name: str) -> Any:
    """A module of this folder."""
    return importlib.import_module(f"transformer_jax.tools.interop.{name}")


def open_counterpart(folder: Path, model: "OpenedModel") -> "Counterpart":
    """The model in ``folder``, in whichever format; raises ConfigError where the format is not known."""
    if not folder.is_dir():
        raise ConfigError(f"--against: {folder} is not a folder; give one that export wrote")
    for name in (name for each in FORMATS.values() for name in each.counterparts):
        if (found := module(name)).recognizes(folder):
            counterpart: Counterpart = found.Counterpart(folder, model)
            return counterpart
    names = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    known = ", ".join(name for name, each in FORMATS.items() if each.counterparts)
    raise ConfigError(f"--against: {folder} has no model of a known format ({known}); found {names}")
