"""Reads the archives that ``archive_export`` writes."""

import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.config import DataError, load_run_config
from transformer_jax.data.tokenizers import load_tokenizers
from transformer_jax.tools.interop.archive_export import (
    CONFIG,
    GOLDEN,
    MANIFEST,
    MODEL,
    SCHEMA_VERSION,
    TOKENIZER,
    described,
)
from transformer_jax.tools.interop.counterpart import Check
from transformer_jax.tools.interop.imported_model import ImportedModel, require_same_names
from transformer_jax.tools.interop.json_object import read_object, value_of
from transformer_jax.tools.interop.opened_model import Example, OpenedModel
from transformer_jax.tools.interop.safetensors_file import read_tensors

# Of a logit, computed on other devices than those that wrote it.
GOLDEN_BOUND = 1e-4


def recognizes(folder: Path) -> bool:
    """Whether this is an archive."""
    return (folder / MANIFEST).is_file()


def read(folder: Path) -> ImportedModel:
    """As ``read_files``; raises DataError too when the model does not compute the logits that are stored beside it."""
    found = read_files(folder)
    for check in golden_checks(folder, found.opened()):
        if check.agreeing < check.total:
            problem = f"{check.total - check.agreeing} of {check.total} sentences have other logits"
            raise DataError(f"{folder / GOLDEN}: {problem} than this version computes with {MODEL} and {CONFIG}")
    return found


def read_files(folder: Path) -> ImportedModel:
    """Settings, tokenizers and parameters; raises DataError unless every file and tensor is what the manifest says."""
    manifest = _manifest(folder)
    for name, digest in manifest["files"].items():
        file = folder / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            problem = "is not what the manifest describes" if file.is_file() else "is missing"
            raise DataError(f"{file}: {problem}; copy the archive again")
    named, golden = (read_tensors(folder / file) for file in (MODEL, GOLDEN))
    for file, tensors, key in ((MODEL, named, "tensors"), (GOLDEN, golden, "golden")):
        require_same_names(set(tensors), set(manifest[key]), folder / file)
        for name, found in described(tensors).items():
            if found != manifest[key][name]:
                raise DataError(f"{folder / file}: {name} is not what {MANIFEST} describes; copy the archive again")
    config, tokenizers = load_run_config(folder / CONFIG), load_tokenizers(folder / TOKENIZER)
    return ImportedModel(config, tokenizers, named)


def golden_checks(folder: Path, model: OpenedModel) -> list[Check]:
    """How many of the sentences in the archive have the logits that are stored with them."""
    stored = read_tensors(folder / GOLDEN)
    numbers = list(itertools.takewhile(lambda number: f"target_{number}" in stored, itertools.count()))
    examples = [
        Example(stored.get(f"source_{number}", np.zeros(0, np.int32)).tolist(), stored[f"target_{number}"].tolist())
        for number in numbers
    ]
    computed = model.logits(examples)
    near = [
        logits.shape == expected.shape and bool(np.all(np.abs(logits - expected) <= GOLDEN_BOUND))
        for logits, expected in zip(computed, (stored[f"logits_{number}"] for number in numbers), strict=True)
    ]
    return [Check("golden logits", sum(near), len(near))] if near else []


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    manifest = read_object(path, "a folder that export --format=safetensors wrote")
    version = value_of(manifest, "schema_version", int, path)
    if version != SCHEMA_VERSION:
        raise DataError(f"{path}: schema_version {version}; this version reads {SCHEMA_VERSION}")
    for key in ("files", "tensors", "golden"):
        value_of(manifest, key, dict, path)
    return manifest
