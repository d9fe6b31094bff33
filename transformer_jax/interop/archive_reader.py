"""Reads the archives that ``archive_export`` writes."""

import hashlib
from pathlib import Path
from typing import Any

from transformer_jax.config import DataError, load_run_config
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.tokenizers import load_tokenizers
from transformer_jax.interop.archive_export import CONFIG, MANIFEST, MODEL, SCHEMA_VERSION, TOKENIZER, described
from transformer_jax.interop.imported_model import ImportedModel, require_same_names
from transformer_jax.interop.safetensors_file import read_tensors


def recognizes(folder: Path) -> bool:
    """Whether this is an archive."""
    return (folder / MANIFEST).is_file()


def read(folder: Path) -> ImportedModel:
    """Settings, tokenizers and parameters; raises DataError unless every file and tensor is what the manifest says."""
    manifest = _manifest(folder)
    for name, digest in manifest["files"].items():
        file = folder / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            problem = "is not what the manifest describes" if file.is_file() else "is missing"
            raise DataError(f"{file}: {problem}; copy the archive again")
    named = read_tensors(folder / MODEL)
    require_same_names(set(named), set(manifest["tensors"]), folder / MODEL)
    for name, found in described(named).items():
        if found != manifest["tensors"][name]:
            raise DataError(f"{folder / MODEL}: {name} is not what {MANIFEST} describes; copy the archive again")
    return ImportedModel(load_run_config(folder / CONFIG), load_tokenizers(folder / TOKENIZER), named)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        version = manifest["schema_version"]
        is_whole = isinstance(manifest["files"], dict) and isinstance(manifest["tensors"], dict)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a folder that export --format=safetensors wrote") from None
    except (ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise DataError(f"{path}: not the manifest of an archive")
    if version != SCHEMA_VERSION:
        raise DataError(f"{path}: schema_version {version}; this version reads {SCHEMA_VERSION}")
    return manifest
