"""The archive format: parameters in safetensors, settings, tokenizers, and a manifest.

``model.safetensors`` has the parameters by path, in this package's layout. ``golden.safetensors``
has token ids of a few sentences and their logits, to check other implementations. ``manifest.json``
has digests of the files, and shapes and types of the tensors.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from transformer_jax.config import DataError, load_run_config, to_json
from transformer_jax.data.tokenizers import load_tokenizers, save_tokenizers
from transformer_jax.run_directory.layout import write_json
from transformer_jax.tools.interop.models import Example, ImportedModel, OpenedModel
from transformer_jax.tools.interop.parity import Check, Counterpart, require_same_tokenizers
from transformer_jax.tools.interop.weight_files import read_object, read_tensors, value_of, write_tensors

SCHEMA_VERSION = 1
GOLDEN_SENTENCES = 5
# Maximum difference of a logit computed on another device.
GOLDEN_BOUND = 1e-4
MANIFEST, CONFIG, TOKENIZER = "manifest.json", "config.json", "tokenizer"
MODEL, GOLDEN = "model.safetensors", "golden.safetensors"


def export(model: OpenedModel, folder: Path, texts: Sequence[str]) -> None:
    """Write the archive of a model, with logits of the first ``texts`` that are not too long."""
    write_tensors(folder / MODEL, model.arrays)
    texts = model.short_enough(texts, model.config.model.longest_sequence)[:GOLDEN_SENTENCES]
    examples = model.examples(texts) if texts else []
    golden = {}
    for number, (example, logits) in enumerate(zip(examples, model.logits(examples), strict=True)):
        golden[f"target_{number}"] = np.asarray(example.target, np.int32)
        golden[f"logits_{number}"] = logits
        if model.translates:
            golden[f"source_{number}"] = np.asarray(example.source, np.int32)
    write_tensors(folder / GOLDEN, golden)
    write_json(folder / CONFIG, to_json(model.saved_config))
    save_tokenizers(model.tokenizers, folder / TOKENIZER)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    manifest = {
        "format": "transformer_jax",
        "schema_version": SCHEMA_VERSION,
        "steps": list(model.steps),
        "files": {str(file.relative_to(folder)): _digest(file) for file in files},
        "tensors": _described(model.arrays),
        "golden": _described(golden),
    }
    write_json(folder / MANIFEST, manifest)


def read(folder: Path) -> ImportedModel:
    """Read an archive. Raises DataError if a file or the golden logits do not match."""
    model = _read_files(folder)
    for check in _golden_checks(folder, model.opened()):
        if check.agreeing < check.total:
            problem = f"the logits of {check.total - check.agreeing} of {check.total} sentences differ"
            raise DataError(f"{folder / GOLDEN}: {problem} from the logits of this version with {MODEL} and {CONFIG}")
    return model


class ArchiveCounterpart(Counterpart):
    """The model of an archive with its own parameters and settings, and the decoding of the run."""

    name = "the archive"

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        require_same_tokenizers(folder / TOKENIZER, model)
        self._folder = folder
        stored = _read_files(folder).opened(model.mesh)
        self._model = replace(stored, config=replace(stored.config, decoding=model.config.decoding))
        self.longest = stored.config.model.longest_sequence

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        return self._model.logits(examples)

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        del longest
        return [target[:-1] for target in self._model.greedy(sources)]

    def checks(self, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """Compare the golden logits."""
        del texts, examples
        return _golden_checks(self._folder, self._model)


open_counterpart = ArchiveCounterpart


def _read_files(folder: Path) -> ImportedModel:
    path = folder / MANIFEST
    manifest = read_object(path)
    version = value_of(manifest, "schema_version", int, path)
    if version != SCHEMA_VERSION:
        raise DataError(f"{path}: schema_version {version}, but this version reads {SCHEMA_VERSION}")
    for name, digest in value_of(manifest, "files", dict, path).items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{path}: {name!r} is outside of the archive {folder}")
        if not file.is_file() or _digest(file) != digest:
            problem = "differs from the manifest" if file.is_file() else "is missing"
            raise DataError(f"{file}: {problem}; copy the archive again")
    config, tokenizers = load_run_config(folder / CONFIG), load_tokenizers(folder / TOKENIZER)
    return ImportedModel(config, tokenizers, read_tensors(folder / MODEL))


def _golden_checks(folder: Path, model: OpenedModel) -> list[Check]:
    """Compare the stored logits with computed ones, if the archive has sentences."""
    stored = read_tensors(folder / GOLDEN)
    numbers = range(sum(name.startswith("target_") for name in stored))
    none = np.zeros(0, np.int32)
    examples = [
        Example(stored.get(f"source_{number}", none).tolist(), stored[f"target_{number}"].tolist())
        for number in numbers
    ]
    pairs = zip(model.logits(examples), (stored[f"logits_{number}"] for number in numbers), strict=True)
    near = [a.shape == b.shape and bool(np.all(np.abs(a - b) <= GOLDEN_BOUND)) for a, b in pairs]
    return [Check("golden logits", sum(near), len(near))] if near else []


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _described(tensors: Mapping[str, np.ndarray]) -> dict[str, dict[str, object]]:
    """Return shape and type by name."""
    return {name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)} for name, leaf in sorted(tensors.items())}
